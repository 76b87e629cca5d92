"""Triton: a kernel compiled by it, through PyTorch's tensors."""

from checks import fact, module, skip, verdict

torch = module("torch")
triton = module("triton")
language = module("triton.language")


@triton.jit
def add(left, right, to, count, BLOCK: language.constexpr):
    at = language.program_id(axis=0) * BLOCK + language.arange(0, BLOCK)
    inside = at < count
    sum_ = language.load(left + at, mask=inside) + language.load(right + at, mask=inside)
    language.store(to + at, sum_, mask=inside)


def main():
    fact("version", triton.__version__)
    if not torch.cuda.is_available():
        skip("torch.cuda.is_available() is false")
    fact("memory", torch.cuda.mem_get_info()[1], "exact")
    left = torch.arange(100_000, dtype=torch.float32, device="cuda")
    to = torch.empty_like(left)
    add[(triton.cdiv(left.numel(), 1024),)](left, left, to, left.numel(), BLOCK=1024)
    torch.cuda.synchronize()
    verdict("computed", torch.equal(to.cpu(), (left + left).cpu()))


main()
