"""NCCL, by PyTorch: a group of one rank, on one GPU. NCCL has the static runtime built in."""

import socket

from checks import fact, module, skip, verdict

torch = module("torch")
distributed = module("torch.distributed")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main():
    if not (torch.cuda.is_available() and distributed.is_nccl_available()):
        skip("this PyTorch finds no GPU or has no NCCL")
    fact("version", ".".join(map(str, torch.cuda.nccl.version())))
    fact("memory", torch.cuda.mem_get_info()[1], "exact")
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    values = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    expected = values.cpu()
    distributed.all_reduce(values)
    gathered = [torch.empty_like(values)]
    distributed.all_gather(gathered, values)
    torch.cuda.synchronize()
    verdict("computed", torch.equal(values.cpu(), expected) and torch.equal(gathered[0].cpu(), expected))
    distributed.destroy_process_group()


main()
