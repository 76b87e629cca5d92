/* A program that no loader touches. */
#include <stdio.h>

int main(void) {
    puts("nothing can be preloaded here");
    return 4;
}
