"""nvcc: a program with the static runtime, which is nvcc's default; compiled and run here."""

import re

from checks import command, fact, folder, output

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>
__global__ void triple(unsigned *v, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) v[i] *= 3;
}
static void must(cudaError_t result, const char *call) {
    if (result == cudaSuccess) return;
    printf("why\t%s: %s\n", call, cudaGetErrorName(result));
    exit(1);
}
int main() {
    const unsigned n = 1 << 20;
    size_t left, total;
    unsigned *at;
    void *more = nullptr;
    std::vector<unsigned> sent(n), back(n);
    for (unsigned i = 0; i < n; i++) sent[i] = i;
    must(cudaMemGetInfo(&left, &total), "cudaMemGetInfo");
    printf("memory\t%zu\texact\n", total);
    must(cudaMalloc(&at, n * 4), "cudaMalloc");
    must(cudaMemcpy(at, sent.data(), n * 4, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
    must(cudaMemcpy(back.data(), at, n * 4, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
    printf("contents\t%s\n", sent == back ? "right" : "wrong");
    cudaError_t refused = cudaMalloc(&more, (total + total / 20) / (2 << 20) * (2 << 20));
    printf("beyond\t%s\n", cudaGetErrorName(refused));
    if (refused != cudaErrorMemoryAllocation) return 1;
    cudaGetLastError();
    triple<<<n / 256, 256>>>(at, n);
    must(cudaDeviceSynchronize(), "the kernel");
    must(cudaMemcpy(back.data(), at, n * 4, cudaMemcpyDeviceToHost), "cudaMemcpy to the host");
    bool right = true;
    for (unsigned i = 0; i < n; i++) right &= back[i] == i * 3;
    printf("computed\t%s\n", right ? "right" : "wrong");
    return 0;
}
"""


def main():
    nvcc = command("nvcc", "/usr/local/cuda/bin/nvcc")
    release = re.search(r"release ([\d.]+)", output(nvcc, "--version"))
    fact("version", release.group(1) if release else "unknown")
    made, place = folder()
    (place / "sample.cu").write_text(SOURCE)
    output(nvcc, "-o", place / "sample", place / "sample.cu", seconds=90)
    print(output(place / "sample"), end="", flush=True)
    made.cleanup()


main()
