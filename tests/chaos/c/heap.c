/* Counts what a program has allocated and not freed, to the byte: what the kernel shows of a process is pages, of which a
 * heap keeps some and gives back others as it likes. The count is the first word of the file that CHAOS_HEAP names. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static int64_t before_it_is_mapped;
static int64_t *live = &before_it_is_mapped;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_HEAP");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *live, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) return;
    /* Nobody else runs yet. */
    *(int64_t *)page = before_it_is_mapped;
    live = page;
}

static void *taken(void *block) {
    if (block) __atomic_fetch_add(live, (int64_t)malloc_usable_size(block), __ATOMIC_RELAXED);
    return block;
}

static void given(void *block) {
    if (block) __atomic_fetch_sub(live, (int64_t)malloc_usable_size(block), __ATOMIC_RELAXED);
}

void *malloc(size_t bytes) { return taken(__libc_malloc(bytes)); }
void *calloc(size_t count, size_t bytes) { return taken(__libc_calloc(count, bytes)); }
void *memalign(size_t align, size_t bytes) { return taken(__libc_memalign(align, bytes)); }
void *aligned_alloc(size_t align, size_t bytes) { return taken(__libc_memalign(align, bytes)); }

int posix_memalign(void **block, size_t align, size_t bytes) {
    *block = taken(__libc_memalign(align, bytes));
    return *block ? 0 : ENOMEM;
}

void *realloc(void *block, size_t bytes) {
    int64_t before = block ? (int64_t)malloc_usable_size(block) : 0;
    void *other = __libc_realloc(block, bytes);
    if (other || !bytes) {
        int64_t after = other ? (int64_t)malloc_usable_size(other) : 0;
        __atomic_fetch_add(live, after - before, __ATOMIC_RELAXED);
    }
    return other;
}

void free(void *block) {
    given(block);
    __libc_free(block);
}
