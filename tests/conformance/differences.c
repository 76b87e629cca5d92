/* The one table of what a slice is allowed to answer otherwise. A check named here must
 * fail inside a slice: an entry that no longer differs is itself a failure. */
#include "suite.h"

const struct difference DIFFERENCES[] = {
    {NULL, NULL},
};
