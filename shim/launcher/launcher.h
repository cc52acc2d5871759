#pragma once
/* Process L: forked by the shim for one launch. */
#include "shim/launcher/plan.h"

/* Runs in the child; tells the shim over plan->shim_sock and never returns. */
void launcher_main(struct plan *plan) __attribute__((noreturn));
