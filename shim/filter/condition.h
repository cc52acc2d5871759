#pragma once
/*
 * How register conditions are written down, for rules.tbl's cases.h and for tables of our own processes.
 *
 * Widths follow the kernel's own argument types: an `int` or `unsigned int` is compared on its low
 * half (the kernel never sees the rest; comparing it would let 0x1_0000_5412 pass for something
 * else), an `unsigned long` on both halves.
 */
#include "shim/filter/filter.h"

/* clang-format off */
#define BITS(a, v)       {.op = TEST_BITS, .arg = (a), .value = (v)}
#define BITS64(a, v)     {.op = TEST_BITS, .arg = (a), .value = (v), .wide = true}
#define IS(a, v)         {.op = TEST_IS, .arg = (a), .value = (v)}
#define IS64(a, v)       {.op = TEST_IS, .arg = (a), .value = (v), .wide = true}
#define GIVEN(a)         {.op = TEST_GIVEN, .arg = (a)}
#define HAS(a, v)        {.op = TEST_HAS, .arg = (a), .value = (v)}
#define IN(a, l)         {.op = TEST_IN, .arg = (a), .mask = ~0U, .list = (l), .n_list = ARRAY_LEN(l)}
#define IN_MASK(a, m, l) {.op = TEST_IN, .arg = (a), .mask = (m), .list = (l), .n_list = ARRAY_LEN(l)}
#define NATIVE(...)      {.how = RULE_NATIVE, .tests = {__VA_ARGS__}}
#define BROKER(...)      {.how = RULE_BROKER, .tests = {__VA_ARGS__}}
#define EMULATE(...)     {.how = RULE_EMULATE, .tests = {__VA_ARGS__}}
#define DENY(err, ...)   {.how = RULE_DENY, .error = (err), .tests = {__VA_ARGS__}}
#define CASES(name)      static const struct rule_case name##_cases[]
/* clang-format on */
