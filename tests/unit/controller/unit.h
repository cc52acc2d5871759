#pragma once
/* cmocka with the headers that it needs before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the four above */
#include <cmocka.h>
#include <string.h>

#include "base/macro.h"
