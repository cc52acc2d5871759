#pragma once
/*
 * Every name that leaves this program: API groups, labels, annotations, condition types, reasons.
 * They are a contract with clients (SDKs, kubectl users, the node agent), so they change only by
 * addition.  Plain constants: any part of the controller, the node agent too, may include this.
 */

/* ---- groups ---- */
#define GROUP_CORE  "agents.x-k8s.io"
#define GROUP_EXT   "extensions.agents.x-k8s.io"
#define GROUP_FRONT "sandbox.k8s.io"
#define API_CORE    GROUP_CORE "/v1beta1"
#define API_EXT     GROUP_EXT "/v1beta1"
#define API_FRONT   GROUP_FRONT "/v1alpha1"

/* ---- pause in place: controller <-> node agent --------------------------------------------------
 *
 * The controller asks by an annotation on the Pod; the node agent of the Pod's node obeys and answers
 * by a Pod condition.  The annotation is level-triggered: it is the wanted state.
 *
 *   ANN_POD_PAUSE      PAUSE_TRUE: hold the pod paused (from the moment it is Ready, if it is not yet).
 *                      PAUSE_FALSE or absent: let it run.
 *   ANN_POD_PAUSE_AT   when that was asked, RFC 3339 with microseconds; only to tell how long it takes.
 *   COND_POD_PAUSED    condition the agent writes on the Pod's status:
 *     True  / POD_PAUSED         paused; message: POD_PAUSED_MESSAGE
 *     False / POD_RUNNING        was paused, runs again; message: POD_RESUMED_MESSAGE.  Not written
 *                                for a pod that was never paused
 *     False / POD_PAUSE_REFUSED  the runtime cannot pause this pod (not glovebox, or too old)
 *     False / POD_PAUSE_FAILED   it should, but did not: one sentence in message; the agent retries
 *     True  / POD_RESUME_FAILED  still paused: one sentence in message; the agent retries
 */
#define GLOVEBOX_PREFIX   "glovebox.dev/"
#define ANN_POD_PAUSE     GLOVEBOX_PREFIX "pause"
#define ANN_POD_PAUSE_AT  GLOVEBOX_PREFIX "pause-requested-at"
#define PAUSE_TRUE        "true"
#define PAUSE_FALSE       "false"
#define COND_POD_PAUSED   GLOVEBOX_PREFIX "Paused"
#define POD_PAUSED        "Paused"
#define POD_RUNNING       "Running"
#define POD_PAUSE_REFUSED "Refused"
#define POD_PAUSE_FAILED  "PauseFailed"
#define POD_RESUME_FAILED "ResumeFailed"
/* printf forms; memory in bytes.  The controller reads the numbers back for status and metrics. */
#define POD_PAUSED_MESSAGE  "memory before %llu after %llu bytes, took %lld ms"
#define POD_RESUMED_MESSAGE "took %lld ms"

/* Which egress policy a pod gets: "open", "none", the policy itself as JSON, or the name of an EgressPolicy.
 */
#define ANN_POD_EGRESS GLOVEBOX_PREFIX "egress"

/* The node agent puts NODE_READY on its Node when the shim and containerd's runtime are in place. */
#define NODE_READY   GLOVEBOX_PREFIX "ready"   /* label; "true" */
#define NODE_MISSING GLOVEBOX_PREFIX "missing" /* annotation; what the kernel lacks, one line */

/* RuntimeClasses whose handler is the shim's; handlers are what counts, this is the default set. */
#define RUNTIME_HANDLER "glovebox"

/* ---- labels ---- */
#define LABEL_NAME_HASH         GROUP_CORE "/sandbox-name-hash"
#define LABEL_POOL              GROUP_CORE "/warm-pool-sandbox"
#define LABEL_TEMPLATE_REF_HASH GROUP_CORE "/sandbox-template-ref-hash"
#define LABEL_TEMPLATE_HASH     GROUP_CORE "/sandbox-template-hash"
#define LABEL_POD_TEMPLATE_HASH GROUP_CORE "/sandbox-pod-template-hash"
#define LABEL_LAUNCH_TYPE       GROUP_CORE "/launch-type"
#define LABEL_CREATED_BY        GROUP_CORE "/created-by"
#define LABEL_CLAIM_UID         GROUP_CORE "/claim-uid"
#define LABEL_ADOPTABLE         GROUP_CORE "/adoptable"
#define LABEL_SANDBOX_NAME      GROUP_CORE "/sandbox-name" /* on claims; old form of ANN_SANDBOX_NAME */

/* ---- annotations ---- */
#define ANN_POD_NAME               GROUP_CORE "/pod-name"
#define ANN_TEMPLATE_REF           GROUP_CORE "/sandbox-template-ref"
#define ANN_SANDBOX_NAME           GROUP_CORE "/sandbox-name"
#define ANN_PROPAGATED_LABELS      GROUP_CORE "/propagated-labels"
#define ANN_PROPAGATED_ANNOTATIONS GROUP_CORE "/propagated-annotations"
#define ANN_FIRST_OBSERVED         GROUP_CORE "/controller-first-observed-at"
#define ANN_CLIENT_REQUESTED       GROUP_CORE "/client-first-requested-at"
#define ANN_WEBHOOK_OBSERVED       GROUP_CORE "/webhook-first-observed-at"
#define ANN_TRACE                  "opentelemetry.io/trace-context"
#define ANN_SAFE_TO_EVICT          "cluster-autoscaler.kubernetes.io/safe-to-evict"
/* On a core object that a sandbox.k8s.io object drives: the value of the field that may be changed on
 * either of the two (paused, replicas), as it was when both were last in step. */
#define ANN_FRONT_SHARED GLOVEBOX_PREFIX "front-shared"
#define SHADOW_POOL      "shadow-pool-" /* + template: an empty pool for claims without one */

/* ---- condition types ---- */
#define COND_READY         "Ready"
#define COND_SUSPENDED     "Suspended"
#define COND_PAUSED        "Paused"
#define COND_RESUMED       "Resumed"
#define COND_POD_SCHEDULED "PodScheduled"
#define COND_FINISHED      "Finished"
#define COND_PROGRESSING   "Progressing"

/* ---- reasons of Sandbox conditions ---- */
#define R_DEPS_READY       "DependenciesReady"
#define R_DEPS_NOT_READY   "DependenciesNotReady"
#define R_SUSPENDED        "SandboxSuspended"
#define R_PAUSED           "SandboxPaused"
#define R_POD_SUCCEEDED    "PodSucceeded"
#define R_POD_FAILED       "PodFailed"
#define R_SANDBOX_EXPIRED  "SandboxExpired"
#define R_MULTIPLE_PODS    "MultiplePods"
#define R_RECONCILER_ERROR "ReconcilerError"
#define R_POD_TERMINATED   "PodTerminated"
#define R_NOT_SUSPENDED    "NotSuspended"
#define R_POD_TERMINATING  "PodTerminating"
#define R_POD_NOT_OWNED    "PodNotOwned"
#define R_POD_UNKNOWN      "PodStateUnknown"
#define R_SCHEDULED        "PodScheduled"
#define R_SCHED_UNKNOWN    "PodSchedulingUnknown"
/* Paused and Resumed */
#define R_PAUSED_IN_PLACE "PausedInPlace"
#define R_PAUSED_DELETED  "PodDeleted"
#define R_PAUSING         "Pausing"
#define R_RESUMING        "Resuming"
#define R_NOT_PAUSED      "NotPaused"
#define R_RUNNING         "Running"
#define R_PAUSE_REFUSED   "PauseRefused"
#define R_PAUSE_FAILED    "PauseFailed"
#define R_RESUME_FAILED   "ResumeFailed"

/* ---- reasons of SandboxClaim conditions ---- */
#define R_POOL_NOT_FOUND     "WarmPoolNotFound"
#define R_TEMPLATE_NOT_FOUND "TemplateNotFound"
#define R_SANDBOX_MISSING    "SandboxMissing"
#define R_SANDBOX_NOT_READY  "SandboxNotReady"
#define R_CLAIM_EXPIRED      "ClaimExpired"
#define R_ADOPTION_CONFLICT  "AdoptionConflict"
#define R_CREATE_PENDING     "SandboxCreatePending"
#define R_INVALID_METADATA   "InvalidMetadata"
#define R_ENV_REJECTED       "EnvVarsInjectionRejected"
#define R_VCT_ERROR          "VolumeClaimTemplatesError"

/* ---- reasons of SandboxWarmPool conditions and events ---- */
#define R_POOL_READY           "AllMembersReady"
#define R_POOL_FILLING         "MembersNotReady"
#define R_POOL_PROGRESSING     "WarmPoolProgressing"
#define R_POOL_NOT_PROGRESSING "WarmPoolNotProgressing"
#define R_POOL_TEMPLATE_ERROR  "SandboxTemplateError"

/* ---- event reasons ---- */
#define EV_ADOPTED     "SandboxAdopted"
#define EV_PROVISIONED "SandboxProvisioned"
#define EV_READY       "SandboxReady"
#define EV_NOT_READY   "SandboxNotReady"
#define EV_PAUSED      "SandboxPaused"
#define EV_RESUMED     "SandboxResumed"
#define EV_SUSPENDED   "SandboxSuspended"
#define EV_EXPIRED     "SandboxExpired"

/* ---- values ---- */
#define LAUNCH_WARM     "warm"
#define LAUNCH_COLD     "cold"
#define CREATED_BY_US   "controller"
#define CREATED_UNKNOWN "unknown"
#define FIELD_MANAGER   "sandbox-controller"
#define LEASE_NAME      "a3317529.agent-sandbox.x-k8s.io"
