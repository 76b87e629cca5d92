// A program of the CUDA runtime as a compiler would make it, without a toolkit: it registers device code when it is
// loaded, launches by the address of a host function, and asks for more than its slice has.
//
// Everything is declared here, after the public documentation of the API. Prints one line of JSON.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned x, y, z; } dim3;
extern int cudaGetDeviceCount(int *), cudaMemGetInfo(size_t *, size_t *), cudaMalloc(void **, size_t), cudaFree(void *);
extern int cudaMemcpy(void *, const void *, size_t, int), cudaMemset(void *, int, size_t), cudaGetLastError(void);
extern int cudaPeekAtLastError(void), cudaRuntimeGetVersion(int *), cudaDeviceSynchronize(void);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *), cudaGetDeviceProperties(void *, int);
extern int cudaEventCreate(void **), cudaEventRecord(void *, void *), cudaEventElapsedTime(float *, void *, void *);
extern int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
extern int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int), cudaMallocAsync(void **, size_t, void *);
extern int cudaFreeAsync(void *, void *);
extern const char *cudaGetErrorName(int), *cudaGetErrorString(int);
extern void **__cudaRegisterFatBinary(void *);
extern void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
extern void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
extern void __cudaUnregisterFatBinary(void **);

// A fat binary with one member: PTX text.
#define PTX ".version 7.0\n.target sm_50\n.address_size 64\n.global .align 8 .b8 room[64];\n" \
            ".visible .entry spin_ns(.param .u64 spin_ns_0) { ret; }\n"
static struct {
    uint32_t magic; uint16_t version, header; uint64_t size;
    uint16_t kind, edition; uint32_t member_header; uint64_t member_size; uint32_t rest[12];
    char text[sizeof PTX];
} code = {0xba55ed50, 1, 16, 64 + sizeof PTX, 1, 0x101, 64, sizeof PTX, {0, 0, 0, 50}, PTX};
static struct { uint32_t magic, version; const void *code; void *name; } wrapper = {0x466243b1, 1, &code, 0};

static void spin(uint64_t nanoseconds) { (void)nanoseconds; }
static char room[64];
static void **binary;

__attribute__((constructor)) static void begin(void) {
    binary = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(binary, (const char *)spin, "spin_ns", "spin_ns", -1, 0, 0, 0, 0, 0);
    __cudaRegisterVar(binary, room, "room", "room", 0, sizeof room, 0, 0);
}

__attribute__((destructor)) static void end(void) { __cudaUnregisterFatBinary(binary); }

int main(void) {
    int devices = 0, version = 0, first = cudaGetDeviceCount(&devices);
    cudaRuntimeGetVersion(&version);
    if (first) {
        printf("{\"version\":%d,\"first\":%d,\"text\":\"%s\"}\n", version, first, cudaGetErrorString(first));
        return 0;
    }
    static union { char name[256]; struct { char before[288]; size_t total; }; char all[4096]; } properties;
    size_t free_bytes = 0, total = 0;
    int shown = cudaGetDeviceProperties(&properties, 0);
    cudaMemGetInfo(&free_bytes, &total);
    char *memory = 0, *beyond = 0, *pooled = 0, text[64] = "there and back", back[64] = "", kept[64] = "";
    int took = cudaMalloc((void **)&memory, 64 << 20);
    cudaMemcpy(memory, text, sizeof text, 1);
    cudaMemcpy(back, memory, sizeof back, 2);
    cudaMemset(memory, 7, 16);
    cudaMemcpy(&text[16], memory, 16, 2);
    int symbol = cudaMemcpyToSymbol(room, text, sizeof text, 0, 1) | cudaMemcpyFromSymbol(kept, room, sizeof kept, 0, 2);
    int outside = cudaMemcpyToSymbol(room, text, sizeof text, 1, 1);
    int unknown = cudaLaunchKernel(text, (dim3){1, 1, 1}, (dim3){1, 1, 1}, 0, 0, 0);
    uint64_t nanoseconds = 20000000;
    void *arguments[] = {&nanoseconds}, *start = 0, *stop = 0;
    cudaEventCreate(&start), cudaEventCreate(&stop), cudaEventRecord(start, 0);
    int launched = cudaLaunchKernel((const void *)spin, (dim3){1, 1, 1}, (dim3){32, 1, 1}, arguments, 0, 0);
    float milliseconds = 0;
    cudaEventRecord(stop, 0), cudaDeviceSynchronize(), cudaEventElapsedTime(&milliseconds, start, stop);
    int from_pool = cudaMallocAsync((void **)&pooled, 1 << 20, 0) | cudaFreeAsync(pooled, 0);
    cudaGetLastError();
    int refused = cudaMalloc((void **)&beyond, total), peeked = cudaPeekAtLastError(), last = cudaGetLastError();
    printf("{\"version\":%d,\"first\":%d,\"devices\":%d,\"name\":\"%s\",\"shown\":%d,\"property\":%zu,\"total\":%zu,"
           "\"took\":%d,\"back\":\"%s\",\"filled\":%d,\"symbol\":%d,\"kept\":%d,\"outside\":%d,\"unknown\":%d,"
           "\"launched\":%d,\"ms\":%f,\"pool\":%d,\"beyond\":%d,\"peeked\":%d,\"last\":%d,\"after\":%d,"
           "\"error\":\"%s\"}\n",
           version, first, devices, properties.name, shown, properties.total, total, took, back, text[31], symbol,
           memcmp(kept, text, sizeof kept), outside, unknown, launched, milliseconds, from_pool, refused, peeked, last,
           cudaGetLastError(), cudaGetErrorName(refused));
    return cudaFree(memory);
}
