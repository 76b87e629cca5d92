/* Routes between processes of a slice: memory that outlives whoever made it. */

struct ipc { char bytes[64]; };

/* Makes pieces and hands them out until told to end, or for ever. */
static void lend_by_handle(int line) {
    struct ipc handle;
    Handle piece;
    char go;
    begin();
    for (;;) {
        hear(line, &go, 1);
        int answer = plain(16 * MIB, &piece);
        tell(line, &answer, sizeof answer);
        if (answer) continue; /* lives on, and holds what it has */
        MUST(CUDA("cuIpcGetMemHandle", (struct ipc *, Address), &handle, piece));
        tell(line, &handle, sizeof handle);
    }
}

static int open_ipc(struct ipc handle, Handle *out) {
    return CUDA("cuIpcOpenMemHandle_v2", (Handle *, struct ipc, unsigned), out, handle, 1);
}

/* Opens up to `most` pieces of a lender; says how many. */
static int borrow(struct child lender, int most) {
    struct ipc handle;
    Handle piece;
    int answer, opened = 0;
    while (opened < most) {
        tell(lender.line, "g", 1);
        hear(lender.line, &answer, sizeof answer);
        if (answer) break;
        hear(lender.line, &handle, sizeof handle);
        answer = open_ipc(handle, &piece);
        if (answer == OUT_OF_MEMORY) break;
        MUST(answer);
        opened++;
    }
    return opened;
}

static void ipc_from_a_living_sibling(void) {
    struct child lender = beget(lend_by_handle);
    begin();
    borrow(lender, 1000);
    fill(plain);
    full();
}

/* What the dead held for themselves comes back when the daemon has noticed. */
static void fill_until_quiet(void) {
    for (int quiet = 0; quiet < 150; quiet++) {
        if (fill(plain) > 0) quiet = 0;
        usleep(10000);
    }
}

/* The memory of a dead exporter is the openers' now. */
static void ipc_from_the_dead(void) {
    struct child lenders[4];
    for (int at = 0; at < 4; at++) lenders[at] = beget(lend_by_handle);
    begin();
    for (int at = 0; at < 4; at++) {
        borrow(lenders[at], 8);
        kill(lenders[at].pid, 9);
        waitpid(lenders[at].pid, NULL, 0);
    }
    fill_until_quiet();
    full();
}

static void ipc_opened_and_closed(void) {
    struct child lender = beget(lend_by_handle);
    struct ipc handle;
    int answer;
    Handle piece;
    begin();
    tell(lender.line, "g", 1);
    hear(lender.line, &answer, sizeof answer);
    MUST(answer);
    hear(lender.line, &handle, sizeof handle);
    for (int round = 0; round < 50; round++) {
        MUST(open_ipc(handle, &piece));
        MUST(CUDA("cuIpcCloseMemHandle", (Address), piece));
        CUDA("cuIpcCloseMemHandle", (Address), piece);
    }
    fill(plain);
    full();
}

static void lend_by_descriptor(int line) {
    Handle piece;
    char go;
    begin();
    for (;;) {
        hear(line, &go, 1);
        int answer = create(16 * MIB, &piece);
        tell(line, &answer, sizeof answer);
        if (answer) continue; /* lives on, and holds what it has */
        int fd = export_handle(piece);
        send_descriptor(line, fd);
        close(fd);
        hear(line, &go, 1); /* it is imported */
        if (go == 'r') MUST(release(piece));
        tell(line, &go, 1);
    }
}

static void import_from(struct child lender, int most, char afterwards) {
    Handle piece;
    int answer;
    for (int round = 0; round < most; round++) {
        tell(lender.line, "g", 1);
        hear(lender.line, &answer, sizeof answer);
        if (answer) break;
        int fd = receive_descriptor(lender.line);
        answer = import_handle(fd, &piece);
        close(fd);
        tell(lender.line, &afterwards, 1);
        hear(lender.line, &afterwards, 1);
        if (answer == OUT_OF_MEMORY) break;
        MUST(answer);
    }
}

static void shareable_held_by_both(void) {
    struct child lender = beget(lend_by_descriptor);
    begin();
    import_from(lender, 1000, 'k');
    fill(plain);
    full();
}
static void shareable_released_by_its_maker(void) {
    struct child lender = beget(lend_by_descriptor);
    begin();
    import_from(lender, 1000, 'r');
    fill(plain);
    full();
}
static void shareable_from_the_dead(void) {
    struct child lenders[4];
    for (int at = 0; at < 4; at++) lenders[at] = beget(lend_by_descriptor);
    begin();
    for (int at = 0; at < 4; at++) {
        import_from(lenders[at], 8, 'k');
        kill(lenders[at].pid, 9);
        waitpid(lenders[at].pid, NULL, 0);
    }
    fill_until_quiet();
    full();
}
/* All exporters dead at once, and the importers full already. */
static void shareable_from_the_dead_to_the_full(void) {
    struct child lender = beget(lend_by_descriptor);
    begin();
    import_from(lender, 8, 'k');
    fill(plain);
    kill(lender.pid, 9);
    waitpid(lender.pid, NULL, 0);
    fill_until_quiet();
    full();
}

/* ---- pools ---- */

struct pool_pointer { char bytes[64]; };

/* Gives out a pool and then pieces of it, and takes them back. */
static void lend_by_pool(int line) {
    struct pool_properties properties = {.type = 1, .handle_types = 1, .location_type = 1};
    struct pool_pointer pointer;
    int fd = -1;
    char go;
    begin();
    MUST(CUDA("cuMemPoolCreate", (Handle *, void *), &pool, &properties));
    keep_everything(pool);
    MUST(CUDA("cuMemPoolExportToShareableHandle", (void *, Handle, int, uint64_t), &fd, pool, 1, 0));
    send_descriptor(line, fd);
    for (;;) {
        hear(line, &go, 1);
        if (go == 'b') { /* the last one is back */
            MUST(free_async(held[--count]));
            MUST(synchronize());
            tell(line, &go, 1);
            continue;
        }
        int answer = from_pool(16 * MIB, &held[count]);
        tell(line, &answer, sizeof answer);
        if (answer) continue; /* lives on, and holds what it has */
        MUST(CUDA("cuMemPoolExportPointer", (void *, Address), &pointer, held[count++]));
        tell(line, &pointer, sizeof pointer);
    }
}

static Handle import_pool(struct child lender) {
    Handle imported, refused;
    int fd = receive_descriptor(lender.line);
    MUST(CUDA("cuMemPoolImportFromShareableHandle", (Handle *, void *, int, uint64_t), &imported, (void *)(intptr_t)fd, 1, 0));
    close(fd);
    if (CUDA("cuMemAllocFromPoolAsync", (Handle *, size_t, Handle, Handle), &refused, MIB, imported, 0) == 0) MUST(1);
    return imported;
}

static int import_piece(struct child lender, Handle imported, Handle *out) {
    struct pool_pointer pointer;
    int answer;
    tell(lender.line, "g", 1);
    hear(lender.line, &answer, sizeof answer);
    if (answer) return answer;
    hear(lender.line, &pointer, sizeof pointer);
    return CUDA("cuMemPoolImportPointer", (Handle *, Handle, void *), out, imported, &pointer);
}

static int import_pieces(struct child lender, Handle imported, int most) {
    int opened = 0, answer = 0;
    Handle piece;
    while (opened < most && (answer = import_piece(lender, imported, &piece)) == 0) opened++;
    if (answer && answer != OUT_OF_MEMORY) MUST(answer);
    return opened;
}

static void pool_shared_by_both(void) {
    struct child lender = beget(lend_by_pool);
    begin();
    import_pieces(lender, import_pool(lender), 1000);
    fill(plain);
    full();
}

/* The memory of a dead exporter is the openers' now. */
static void pool_shared_from_the_dead(void) {
    struct child lenders[4];
    for (int at = 0; at < 4; at++) lenders[at] = beget(lend_by_pool);
    begin();
    for (int at = 0; at < 4; at++) {
        import_pieces(lenders[at], import_pool(lenders[at]), 8);
        kill(lenders[at].pid, 9);
        waitpid(lenders[at].pid, NULL, 0);
    }
    fill_until_quiet();
    full();
}

/* Taken, given back behind a kernel or plainly, and taken again: one piece of memory, however often. */
static void pool_shared_and_returned(void) {
    struct child lender = beget(lend_by_pool);
    Handle piece, stream;
    char done;
    begin();
    stream = new_stream();
    Handle imported = import_pool(lender);
    for (int round = 0; round < 300; round++) {
        MUST(import_piece(lender, imported, &piece));
        if (round % 2) MUST(release_plain(piece)); else MUST(free_in(piece, stream));
        if (release_plain(piece) == 0) MUST(1);
        MUST(synchronize());
        tell(lender.line, "b", 1);
        hear(lender.line, &done, 1);
    }
    MUST(CUDA("cuMemPoolDestroy", (Handle), imported));
    fill(plain);
    full();
}

/* ---- families ---- */

static void fill_until_told(int line) {
    char go;
    begin();
    tell(line, "r", 1);
    hear(line, &go, 1);
    fill_from(plain, 8 * MIB, 2 * MIB);
    tell(line, "f", 1);
    hear(line, &go, 1);
}
static void race(int racers) {
    struct child children[8];
    char word;
    for (int at = 0; at < racers; at++) children[at] = beget(fill_until_told);
    for (int at = 0; at < racers; at++) hear(children[at].line, &word, 1);
    for (int at = 0; at < racers; at++) tell(children[at].line, "g", 1);
    for (int at = 0; at < racers; at++) hear(children[at].line, &word, 1);
    full();
}
static void two_processes_race(void) { race(2); }
static void three_processes_race(void) { race(3); }

/* A child that inherits the driver can do nothing with it, and nothing to its parent's account. */
static void meddle(int line) {
    Handle piece;
    (void)line;
    for (int round = 0; round < 20; round++) {
        plain(64 * MIB, &piece);
        for (int at = 0; at < count; at++) release_plain(held[at]);
    }
}
static void forked_after_the_driver_began(void) {
    begin();
    hold_all(plain, 32 * MIB);
    for (int round = 0; round < 4; round++) bury(beget(meddle));
    fill(plain);
    full();
}

/* Fills up all of the slice but a context, once what the dead held has come back. */
static void fill_with_patience(void) {
    size_t unused = 0, total = 0, filled = 0;
    MUST(CUDA("cuMemGetInfo_v2", (size_t *, size_t *), &unused, &total));
    for (int patience = 0; patience < 2000 && filled + 320 * MIB < total; patience++) {
        filled += fill(plain);
        usleep(5000);
    }
    fill(plain);
}

/* What the dead held may not have come back yet. */
static void begin_with_patience(void) {
    MUST(CUDA("cuInit", (unsigned), 0));
    for (int patience = 0; patience < 2000 && CUDA("cuDevicePrimaryCtxRetain", (Handle *, int), &context, 0); patience++)
        usleep(5000);
    begin();
}

/* One after the other fills up and dies; the last one stays. */
static void take_and_die(int line) {
    (void)line;
    begin_with_patience();
    fill_from(plain, 64 * MIB, 2 * MIB);
    kill(getpid(), 9);
}
static void one_after_the_other_dies_full(void) {
    for (int round = 0; round < 6; round++) {
        struct child child = beget(take_and_die);
        waitpid(child.pid, NULL, 0);
        close(child.line);
    }
    begin_with_patience();
    fill_with_patience();
    full();
}

static char *own_name;
static void another_program_after_filling(void) {
    begin();
    fill(plain);
    fflush(NULL);
    execl("/proc/self/exe", own_name, "plain_large_with_patience", (char *)NULL);
    MUST(errno);
}
static void plain_large_with_patience(void) {
    begin();
    fill_with_patience();
    full();
}

/* ---- checkpoints ---- */

static void fill_when_told(int line) {
    char go = 'b';
    begin();
    tell(line, &go, 1);
    hear(line, &go, 1);
    fill(plain);
    tell(line, &go, 1);
    hear(line, &go, 1);
}

static int on_itself(const char *name) {
    int (*function)(int, void *) = (int (*)(int, void *))symbol(name);
    return function ? function(getpid(), NULL) : NO_SYMBOL;
}

/* Memory that a checkpoint takes off the device comes back, so no sibling can have it meanwhile. */
static void checkpointed_beside_a_sibling(void) {
    struct child sibling = beget(fill_when_told);
    char go;
    hear(sibling.line, &go, 1);
    begin();
    fill(plain);
    MUST(on_itself("cuCheckpointProcessLock"));
    MUST(on_itself("cuCheckpointProcessCheckpoint"));
    tell(sibling.line, "g", 1);
    hear(sibling.line, &go, 1);
    MUST(on_itself("cuCheckpointProcessRestore"));
    MUST(on_itself("cuCheckpointProcessUnlock"));
    fill(plain);
    full();
}
