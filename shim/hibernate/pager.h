#pragma once
/* The pager process, from fork to exit. */
#include "base/err.h"
#include "base/macro.h"
#include "shim/hibernate/hibernate.h"

void pager_main(const struct hibernate_params *params, int control) NORETURN;
