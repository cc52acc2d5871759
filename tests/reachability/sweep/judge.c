/* Reads `NR A0 .. A5 ...` lines (arguments hexadecimal) and prints what the table declares: native or the
 * verdict's name. */
#include <stdio.h>

#include "shim/filter/filter.h"

int main(void)
{
    char line[512];

    while (fgets(line, sizeof line, stdin)) {
        uint64_t a[6];
        long nr;
        if (sscanf(line, "%ld %lx %lx %lx %lx %lx %lx", &nr, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5]) != 7)
            continue;
        puts(rule_how_name(rule_judge(nr, a).how));
    }
    return 0;
}
