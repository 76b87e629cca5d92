/* Routes of virtual memory, arrays and multicast: handles released while something still needs the memory. */

static void physical_memory(void) { begin(); fill(create); full(); }

static void physical_and_mapped(void) {
    size_t bytes = 16 * MIB;
    begin();
    Address at = reserve(4 * GIB);
    hold_all(create, bytes);
    for (int one = 0; one < count; one++) MUST(map(at + one * bytes, bytes, held[one]));
    fill(create);
    full();
}

/* Memory stays until it is unmapped, whoever has released its handle. */
static void released_while_mapped(void) {
    size_t bytes = 16 * MIB;
    Handle handle;
    begin();
    Address base = reserve(8 * GIB), at = base;
    while (at < base + 8 * GIB && create(bytes, &handle) == 0) {
        MUST(map(at, bytes, handle));
        MUST(release(handle));
        at += bytes;
    }
    fill(plain);
    full();
    for (Address done = base; done < at; done += bytes) MUST(unmap(done, bytes));
    fill(create);
    full();
}

static void retained_from_a_mapping(void) {
    size_t bytes = 16 * MIB;
    Handle handle, again;
    begin();
    Address at = reserve(bytes);
    for (int round = 0; round < 200 && create(bytes, &handle) == 0; round++) {
        MUST(map(at, bytes, handle));
        MUST(CUDA("cuMemRetainAllocationHandle", (Handle *, void *), &again, (void *)at));
        MUST(release(handle));
        MUST(unmap(at, bytes));
    }
    fill(plain);
    full();
}

static void mapped_twice(void) {
    size_t bytes = 16 * MIB;
    Handle handle;
    begin();
    Address base = reserve(8 * GIB), at = base;
    while (at < base + 8 * GIB && create(bytes, &handle) == 0) {
        MUST(map(at, bytes, handle));
        MUST(map(at + bytes, bytes, handle));
        MUST(release(handle));
        MUST(unmap(at, bytes));
        at += 2 * bytes;
    }
    fill(plain);
    full();
}

static void released_twice(void) {
    Handle handle;
    begin();
    for (int round = 0; round < 50; round++) {
        MUST(create(32 * MIB, &handle));
        MUST(release(handle));
        release(handle);
    }
    fill(create);
    full();
}

static int export_handle(Handle handle) {
    int fd = -1;
    MUST(CUDA("cuMemExportToShareableHandle", (void *, Handle, int, uint64_t), &fd, handle, 1, 0));
    return fd;
}
static int import_handle(int fd, Handle *out) {
    return CUDA("cuMemImportFromShareableHandle", (Handle *, void *, int), out, (void *)(intptr_t)fd, 1);
}

/* An import of one's own memory keeps it when the first handle goes. */
static void imported_by_its_maker(void) {
    Handle handle, twin;
    begin();
    for (int round = 0; round < 200 && create(16 * MIB, &handle) == 0; round++) {
        int fd = export_handle(handle);
        int answer = import_handle(fd, &twin);
        close(fd);
        MUST(release(handle));
        if (answer == OUT_OF_MEMORY) break;
        MUST(answer);
    }
    fill(plain);
    full();
}

struct external_import { int type; uint64_t handle[2]; uint64_t size; unsigned flags, reserved[16]; };
struct external_view { uint64_t offset, size; unsigned flags, reserved[16]; };

static void external_memory(void) {
    size_t bytes = 16 * MIB;
    Handle handle, external, buffer;
    begin();
    for (int round = 0; round < 200 && create(bytes, &handle) == 0; round++) {
        int fd = export_handle(handle);
        struct external_import import = {.type = 1, .handle = {(unsigned)fd}, .size = bytes};
        struct external_view view = {.size = bytes};
        int answer = CUDA("cuImportExternalMemory", (Handle *, void *), &external, &import);
        MUST(release(handle));
        if (answer == OUT_OF_MEMORY) { close(fd); break; }
        MUST(answer);
        if (round % 2) continue;
        MUST(CUDA("cuExternalMemoryGetMappedBuffer", (Handle *, Handle, void *), &buffer, external, &view));
        MUST(CUDA("cuDestroyExternalMemory", (Handle), external));
    }
    fill(plain);
    full();
}

struct solid { size_t width, height, depth; int format; unsigned channels, flags; };
enum { FLOATS = 0x20, SPARSE = 0x40 };
struct external_array { uint64_t offset; struct solid shape; unsigned levels, reserved[16]; };

/* An array over external memory keeps that when the object it came from is no more. */
static void external_memory_as_arrays(void) {
    size_t bytes = 16 * MIB;
    Handle handle, external;
    begin();
    for (count = 0; count < 200 && create(bytes, &handle) == 0; count++) {
        int fd = export_handle(handle);
        struct external_import import = {.type = 1, .handle = {(unsigned)fd}, .size = bytes};
        struct external_array view = {.shape = {1024, 1024, 0, FLOATS, 1, 0}, .levels = 3};
        int answer = CUDA("cuImportExternalMemory", (Handle *, void *), &external, &import);
        MUST(release(handle));
        if (answer == OUT_OF_MEMORY) { close(fd); break; }
        MUST(answer);
        MUST(CUDA("cuExternalMemoryGetMappedMipmappedArray", (Handle *, Handle, void *), &held[count], external, &view));
        MUST(CUDA("cuDestroyExternalMemory", (Handle), external));
    }
    fill(plain);
    full();
    while (count > 0) MUST(CUDA("cuMipmappedArrayDestroy", (Handle), held[--count]));
    fill(plain);
    full();
}

struct map_info { /* CUarrayMapInfo */
    int resource, pad;
    Handle array;
    int subresource, pad_too;
    struct { unsigned level, layer, x, y, z, width, height, depth; } region;
    int operation, handle_type;
    Handle memory;
    uint64_t offset;
    unsigned devices, flags, reserved[2];
};
enum { MAP = 1, UNMAP = 2 };

/* All of a sparse array of 16 MiB. */
static int map_array(Handle array, int operation, Handle memory, Handle stream) {
    struct map_info info = {.array = array, .region = {.width = 2048, .height = 2048, .depth = 1}, .operation = operation,
                            .memory = memory, .devices = 1};
    return CUDA("cuMemMapArrayAsync", (void *, unsigned, Handle), &info, 1, stream);
}

/* Memory stays while it is in an array: until a stream has come to its unmapping, or the array ends. */
static void tiles_of_sparse_arrays(void) {
    struct solid shape = {2048, 2048, 0, FLOATS, 1, SPARSE};
    Handle stream, memory;
    begin();
    stream = new_stream();
    launch_spin(stream, 1000);
    for (count = 0; count < 200 && create(16 * MIB, &memory) == 0; count++) {
        MUST(CUDA("cuArray3DCreate_v2", (Handle *, void *), &held[count], &shape));
        MUST(map_array(held[count], MAP, memory, stream));
        MUST(release(memory));
    }
    fill(plain);
    full();
    launch_spin(stream, 60000000);
    for (int at = 0; at < count; at += 2) MUST(map_array(held[at], UNMAP, 0, stream));
    fill(plain);
    MUST(CUDA("cuStreamSynchronize", (Handle), stream));
    fill(plain);
    full();
    for (int at = 0; at < count; at++) MUST(CUDA("cuArrayDestroy", (Handle), held[at]));
    fill(plain);
    full();
}

struct multicast { unsigned devices; size_t size; uint64_t handle_types, flags; };

static void bound_to_multicast(void) {
    size_t bytes = 16 * MIB;
    Handle object, handle;
    begin();
    struct multicast properties = {1, 16 * GIB, 0, 0};
    MUST(CUDA("cuMulticastCreate", (Handle *, void *), &object, &properties));
    MUST(CUDA("cuMulticastAddDevice", (Handle, int), object, device));
    for (size_t at = 0; at < 16 * GIB && create(bytes, &handle) == 0; at += bytes) {
        int answer = CUDA("cuMulticastBindMem", (Handle, size_t, Handle, size_t, size_t, uint64_t), object, at, handle, 0,
                          bytes, 0);
        MUST(release(handle));
        if (answer == OUT_OF_MEMORY) break;
        MUST(answer);
    }
    fill(plain);
    full();
}

/* ---- arrays ---- */

struct flat { size_t width, height; int format; unsigned channels; };

static int array(size_t bytes, Handle *out) {
    struct flat shape = {4096, bytes / 16384, FLOATS, 1};
    return CUDA("cuArrayCreate_v2", (Handle *, void *), out, &shape);
}
static int solid_array(size_t bytes, Handle *out) {
    struct solid shape = {256, 256, bytes / (1 << 20), FLOATS, 4, 0};
    return CUDA("cuArray3DCreate_v2", (Handle *, void *), out, &shape);
}
static int layered_array(size_t bytes, Handle *out) {
    struct solid shape = {256, 256, bytes / (1 << 20), FLOATS, 4, 1};
    return CUDA("cuArray3DCreate_v2", (Handle *, void *), out, &shape);
}
/* A whole chain of levels is a third more than its first. */
static int mipmapped(size_t bytes, Handle *out) {
    struct solid shape = {1024, bytes / 8192, 0, FLOATS, 1, 0};
    return CUDA("cuMipmappedArrayCreate", (Handle *, void *, unsigned), out, &shape, 8);
}
static int tiny_array(size_t bytes, Handle *out) {
    struct flat shape = {16, bytes / 64, FLOATS, 1};
    return CUDA("cuArrayCreate_v2", (Handle *, void *), out, &shape);
}

static void flat_arrays(void) { begin(); fill(array); fill(plain); full(); }
static void solid_arrays(void) { begin(); fill(solid_array); fill(plain); full(); }
static void layered_arrays(void) { begin(); fill(layered_array); fill(plain); full(); }
static void mipmapped_arrays(void) { begin(); fill(mipmapped); fill(plain); full(); }
static void tiny_arrays(void) { begin(); hold_all(tiny_array, 64 * KIB); fill(plain); full(); }

static void arrays_destroyed_twice(void) {
    Handle one;
    begin();
    for (int round = 0; round < 50; round++) {
        MUST(array(64 * MIB, &one));
        MUST(CUDA("cuArrayDestroy", (Handle), one));
        CUDA("cuArrayDestroy", (Handle), one);
    }
    fill(plain);
    full();
}
