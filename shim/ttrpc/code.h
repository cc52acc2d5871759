#pragma once
/*
 * Status codes of a ttrpc answer (google.rpc.Code) and the text that goes with them.  The mapping
 * from errno is one table here so that server and client agree.
 */
enum ttrpc_code {
    TTRPC_OK = 0,
    TTRPC_CANCELED = 1,
    TTRPC_UNKNOWN = 2,
    TTRPC_INVALID_ARGUMENT = 3,
    TTRPC_DEADLINE_EXCEEDED = 4,
    TTRPC_NOT_FOUND = 5,
    TTRPC_ALREADY_EXISTS = 6,
    TTRPC_PERMISSION_DENIED = 7,
    TTRPC_RESOURCE_EXHAUSTED = 8,
    TTRPC_FAILED_PRECONDITION = 9,
    TTRPC_ABORTED = 10,
    TTRPC_OUT_OF_RANGE = 11,
    TTRPC_UNIMPLEMENTED = 12,
    TTRPC_INTERNAL = 13,
    TTRPC_UNAVAILABLE = 14,
    TTRPC_DATA_LOSS = 15,
    TTRPC_UNAUTHENTICATED = 16,
};

/* "not found", "already exists" ...: containerd's clients strip such a suffix; "unknown" for a foreign
 * number. */
const char *ttrpc_code_text(int code);
/* Negative errno (or its absolute value) to a code; what has no row is TTRPC_UNKNOWN. */
enum ttrpc_code ttrpc_code_from_errno(int error);
/* The reverse, always negative; 0 for TTRPC_OK. */
int ttrpc_code_to_errno(int code);
