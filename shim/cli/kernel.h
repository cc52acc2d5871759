#pragma once
/*
 * What this kernel lacks of what glovebox can use.  Without the things it needs no pod is started at
 * all; without those named here pods run, behind the same barrier, but slower or less robust.
 */
#include "base/strbuf.h"

/* Appends "name (what follows from it), ..." and returns how many are missing. Forks for some probes. */
unsigned kernel_missing(struct strbuf *out);
