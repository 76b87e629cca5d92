"""faiss: the nearest of vectors by its index on the GPU is what its index on the host finds."""

from checks import fact, module, skip, verdict

numpy = module("numpy")
faiss = module("faiss")


def main():
    fact("version", faiss.__version__)
    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        skip("this faiss knows no GPU")
    vectors = numpy.random.default_rng(1).random((4096, 32), dtype=numpy.float32)
    host = faiss.IndexFlatL2(32)
    device = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, faiss.IndexFlatL2(32))
    host.add(vectors)
    device.add(vectors)
    nearest = [index.search(vectors[:64], 1)[1] for index in (host, device)]
    verdict("computed", (nearest[0] == nearest[1]).all())


main()
