/* As many small allocations as the argument says, all there at once, and freed again. */
#include "escape/driver.h"

int main(int words, char **word) {
    size_t most = words > 1 ? strtoul(word[1], NULL, 10) : 0;
    Handle *all = calloc(most, sizeof *all);
    if (!all) MUST(errno);
    begin();
    full();
    for (size_t at = 0; at < most; at++) MUST(plain(512, &all[at]));
    full();
    for (size_t at = 0; at < most; at++) MUST(release_plain(all[at]));
    full();
    return 0;
}
