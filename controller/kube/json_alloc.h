#pragma once
/*
 * jansson allocates a small block for every value and gives all of them back a moment later; malloc then
 * spends a fifth of the program's time on joining and splitting chunks.  These blocks are kept by size
 * instead, up to a limit.  They stay blocks of malloc, so what jansson hands out may still be given to
 * free(), as it is everywhere.  For one thread; a build with AddressSanitizer keeps jansson's own way.
 */
void json_alloc_use(void); /* any number of times */
