"""torch.compile: what it makes of a function computes what the function does."""

from checks import fact, module, skip, verdict

torch = module("torch")


def curve(x):
    return torch.sin(x) * 2 + x.square()


def main():
    fact("version", torch.__version__)
    if not torch.cuda.is_available():
        skip("torch.cuda.is_available() is false")
    module("triton")
    fact("memory", torch.cuda.mem_get_info()[1], "exact")
    values = torch.linspace(-3, 3, 100_000, device="cuda")
    verdict("computed", torch.allclose(torch.compile(curve)(values), curve(values), atol=1e-4))


main()
