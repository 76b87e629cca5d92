/* Attempts behind the library's back. */

static void take_behind(void *library) {
    struct driver driver;
    begin(&driver, library, 1);
    CHECK(allocate(&driver, 2 * GIB));
}

static void alias(void) { take_behind(dlopen(detail, RTLD_NOW | RTLD_LOCAL)); }

/* The loader gives it libraries of its own, and nothing that was preloaded. */
static void own_namespace(void) { take_behind(dlmopen(LM_ID_NEWLM, detail, RTLD_NOW)); }

/* The driver's own file, by its path. */
static void by_path(void) {
    struct driver driver;
    begin(&driver, dlopen(detail, RTLD_NOW), 0);
    say("done", allocate(&driver, GIB));
}

static void alias_launch(void) {
    struct driver driver;
    begin(&driver, dlopen(detail, RTLD_NOW | RTLD_LOCAL), 1);
    launch(&driver, 8000);
}
