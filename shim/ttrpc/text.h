#pragma once
/* Every byte that is not part of well-formed UTF-8 (as Go's decoder sees it) becomes '?'. */
void ttrpc_text_clean(char *text);
