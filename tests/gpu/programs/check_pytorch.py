"""PyTorch: memory, copies, a product, out of memory and work after it."""

from checks import beyond, fact, module, more_than, skip, verdict

torch = module("torch")


def product():
    left = torch.arange(64 * 64, dtype=torch.float32, device="cuda").reshape(64, 64)
    return torch.equal((left @ torch.eye(64, device="cuda")).cpu(), left.cpu())


def main():
    fact("version", torch.__version__)
    if not torch.cuda.is_available():
        skip("torch.cuda.is_available() is false")
    total = torch.cuda.mem_get_info()[1]
    fact("memory", total, "exact")
    host = torch.arange(1 << 20)
    verdict("contents", torch.equal(host.cuda().clone().cpu(), host))
    beyond(lambda: torch.empty(more_than(total), dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError)
    verdict("contents", torch.equal(host.cuda().cpu(), host))
    verdict("computed", product())


main()
