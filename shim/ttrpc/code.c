#include "shim/ttrpc/code.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/macro.h"

static const char *const texts[] = {
    [TTRPC_OK] = "ok",
    [TTRPC_CANCELED] = "context canceled",
    [TTRPC_UNKNOWN] = "unknown",
    [TTRPC_INVALID_ARGUMENT] = "invalid argument",
    [TTRPC_DEADLINE_EXCEEDED] = "context deadline exceeded",
    [TTRPC_NOT_FOUND] = "not found",
    [TTRPC_ALREADY_EXISTS] = "already exists",
    [TTRPC_PERMISSION_DENIED] = "permission denied",
    [TTRPC_RESOURCE_EXHAUSTED] = "resource exhausted",
    [TTRPC_FAILED_PRECONDITION] = "failed precondition",
    [TTRPC_ABORTED] = "aborted",
    [TTRPC_OUT_OF_RANGE] = "out of range",
    [TTRPC_UNIMPLEMENTED] = "not implemented",
    [TTRPC_INTERNAL] = "internal",
    [TTRPC_UNAVAILABLE] = "unavailable",
    [TTRPC_DATA_LOSS] = "data loss",
    [TTRPC_UNAUTHENTICATED] = "unauthenticated",
};

/* The first row of a code is what it becomes on the way back. */
static const struct {
    int error;
    enum ttrpc_code code;
} rows[] = {
    {ECANCELED, TTRPC_CANCELED},
    {EIO, TTRPC_UNKNOWN},
    {EINVAL, TTRPC_INVALID_ARGUMENT},
    {EBADMSG, TTRPC_INVALID_ARGUMENT},
    {ENAMETOOLONG, TTRPC_INVALID_ARGUMENT},
    {ETIMEDOUT, TTRPC_DEADLINE_EXCEEDED},
    {ENOENT, TTRPC_NOT_FOUND},
    {ESRCH, TTRPC_NOT_FOUND},
    {EEXIST, TTRPC_ALREADY_EXISTS},
    {EACCES, TTRPC_PERMISSION_DENIED},
    {EPERM, TTRPC_PERMISSION_DENIED},
    {EMSGSIZE, TTRPC_RESOURCE_EXHAUSTED},
    {EFBIG, TTRPC_RESOURCE_EXHAUSTED},
    {E2BIG, TTRPC_RESOURCE_EXHAUSTED},
    {EBUSY, TTRPC_FAILED_PRECONDITION},
    {EINTR, TTRPC_ABORTED},
    {ERANGE, TTRPC_OUT_OF_RANGE},
    {EOPNOTSUPP, TTRPC_UNIMPLEMENTED},
    {ENOSYS, TTRPC_UNIMPLEMENTED},
    {EFAULT, TTRPC_INTERNAL},
    {EAGAIN, TTRPC_UNAVAILABLE},
    {ENODATA, TTRPC_DATA_LOSS},
    {EKEYREJECTED, TTRPC_UNAUTHENTICATED},
};

const char *ttrpc_code_text(int code)
{
    if (code < 0 || (size_t)code >= ARRAY_LEN(texts))
        return texts[TTRPC_UNKNOWN];
    return texts[code];
}

enum ttrpc_code ttrpc_code_from_errno(int error)
{
    if (error == 0)
        return TTRPC_OK;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].error == abs(error))
            return rows[i].code;
    return TTRPC_UNKNOWN;
}

int ttrpc_code_to_errno(int code)
{
    if (code == TTRPC_OK)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if ((int)rows[i].code == code)
            return -rows[i].error;
    return -EIO;
}
