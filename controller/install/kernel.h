#pragma once
/* What the node's kernel lacks for the runtime: "" or a list in words, separated by "; ". */
#include <stddef.h>

void kernel_missing(char *out, size_t size);
