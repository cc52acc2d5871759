#pragma once
/* What the kernel must have; tried, not guessed from its version. */
#include "base/err.h"

/* 0, or -ENOSYS with a sentence that names what is missing. A pod is refused rather than run with less. */
int features_check(struct err *e);
