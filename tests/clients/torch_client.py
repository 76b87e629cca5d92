#!/usr/bin/env python3
"""PyTorch programs that run in slices of a simulated GPU, on which kernels take time and compute nothing.

usage: torch_client.py tensors | compiled | replays | train [eager|graph|heavy] | resumable CHECKPOINT | storm OPERATIONS SEED
       | share | loader | gather RANK WORLD PORT

Each prints lines of JSON. Checks rest on what the device does for real: copies, fills, accounts, order.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import warnings

import torch

MIB = 1 << 20
warnings.filterwarnings("ignore")
torch.backends.cudnn.enabled = False


def report(**fields):
    print(json.dumps(fields), flush=True)


def same(one, other):
    assert torch.equal(one, other), "bytes differ"


def layers(width=512, depth=4):
    parts = [part for _ in range(depth) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*parts).cuda()


# ---- tensors ----


def copies():
    """Bytes survive every way over the device, across the seams of expandable segments too."""
    host = torch.arange(9 * MIB, dtype=torch.int32)
    device = host.cuda()
    same(device.clone().cpu(), host)
    same(host.pin_memory().cuda(non_blocking=True).cpu(), host)
    kept = [torch.empty(3 * MIB, dtype=torch.uint8, device="cuda").copy_(host.view(torch.uint8)[: 3 * MIB])
            for _ in range(40)]
    del kept[::2]
    wide = host.cuda()
    same(wide[MIB:5 * MIB].cpu(), host[MIB:5 * MIB])
    zeros = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.current_stream().synchronize()
    same(zeros.zero_().cpu()[:MIB], torch.zeros(MIB, dtype=torch.uint8))


def streams():
    """Events of another stream measure the time of a product, and order work."""
    side, start, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    left = torch.empty(4096, 4096, device="cuda")
    with torch.cuda.stream(side):
        start.record()
        left @ left
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    took = start.elapsed_time(end)
    assert 0.5 < took < 2000, took
    return took


def full():
    """Fills the slice to its end, gets PyTorch's own out-of-memory error, and goes on."""
    _, total = torch.cuda.mem_get_info()
    kept = []
    try:
        while True:
            kept.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError as error:
        text = str(error)
    held = len(kept) * 256 * MIB
    del kept
    torch.cuda.empty_cache()
    again = torch.empty(held // 2, dtype=torch.uint8, device="cuda")
    del again
    torch.cuda.empty_cache()
    assert "out of memory" in text, text
    return held, total, text


def operators():
    """Kernels of many kinds launch: none of them is missing in the compressed code."""
    x = torch.rand(256, 256, device="cuda")
    [x + 1, x.sum(), x.softmax(0), x.t().contiguous(), x.cumsum(0), x.sort(), x.topk(3), x.to(torch.bfloat16)]
    torch.nn.functional.layer_norm(x, (256,)), torch.fft.fft(x), torch.nn.Conv2d(3, 8, 3).cuda()(x.expand(2, 3, -1, -1))
    encoder = torch.nn.TransformerEncoderLayer(256, 4, batch_first=True).cuda()
    encoder(x.unsqueeze(0)).sum().backward()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        layers()(torch.empty(8, 512, device="cuda")).float().sum().backward()
    torch.cuda.synchronize()


def utilised():
    """What NVML shows of products in percent, as soon as that is not nothing."""
    factor, most, end = torch.empty(4096, 4096, device="cuda"), 0, time.monotonic() + 30
    while most == 0 and time.monotonic() < end:
        for _ in range(16):
            factor @ factor
        torch.cuda.current_stream().synchronize()
        most = torch.cuda.utilization()
    return most


def tensors():
    copies()
    took = streams()
    operators()
    used = utilised()
    held, total, text = full()
    properties = torch.cuda.get_device_properties(0)
    free, seen = torch.cuda.mem_get_info()
    report(devices=torch.cuda.device_count(), total=total, properties=properties.total_memory, free=free, seen=seen,
           held=held, product_ms=took, oom=text, ooms=torch.cuda.memory_stats().get("num_ooms", 1),
           utilization=used, name=properties.name, capability=torch.cuda.get_device_capability())


# ---- compiled ----


def replays():
    """Replays of a graph that allocates: with room, thrice without, and twice with room again.

    Before the third without room the program frees what the graph gave it.
    """
    step = lambda: torch.empty(256 * MIB, dtype=torch.uint8, device="cuda").fill_(7)[:16].clone()
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        step()
    side.synchronize()
    with torch.cuda.graph(graph):
        kept = [torch.empty(512 * MIB, dtype=torch.uint8, device="cuda").fill_(3), step()]
    held, outcomes = [], []

    def replay():
        try:
            graph.replay()
            torch.cuda.synchronize()
            outcomes.append("ran")
        except RuntimeError as error:
            outcomes.append(str(error).splitlines()[0])

    replay()
    for size in (1024 * MIB, 16 * MIB, 2 * MIB):
        try:
            while True:
                held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            pass
    for _ in range(2):
        replay()
    kept.clear()
    replay()
    held.clear()
    torch.cuda.empty_cache()
    for _ in range(2):
        replay()
    report(outcomes=outcomes)


def compiled():
    """Modules that PyTorch compiles train: traced, as graphs, with Triton's kernels, with those in graphs."""
    ways = {"aot_eager": {"backend": "aot_eager"}, "cudagraphs": {"backend": "cudagraphs"}, "inductor": {},
            "reduce-overhead": {"mode": "reduce-overhead"}}
    steps = {}
    for name, options in ways.items():
        torch._dynamo.reset()
        model = torch.nn.Sequential(torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)).cuda()
        traced = torch.compile(model, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad(set_to_none=True)
            torch.compiler.cudagraph_mark_step_begin()
            traced(torch.empty(8, 128, device="cuda")).square().mean().backward()
            optimizer.step()
            steps[name] = step + 1
        torch.cuda.synchronize()
    kernels = [name for _, _, names in os.walk(os.environ["TRITON_CACHE_DIR"]) for name in names]
    held, total, text = full()
    report(steps=steps, binaries=sum(name.endswith(".cubin") for name in kernels), held=held, total=total, oom=text)


# ---- training ----


class Problem:
    """A regression whose weights live on the device and are worked on by the host: its loss is a true one."""

    def __init__(self):
        numbers = torch.Generator().manual_seed(1)
        self.target = torch.rand(1 << 12, generator=numbers)
        self.weights = torch.zeros(1 << 12, device="cuda")

    def step(self):
        weights = self.weights.cpu()
        away = weights - self.target
        self.weights.copy_(weights - 1e-4 * away)
        return away.square().mean().item()


def solve(problem, losses, ended):
    with torch.cuda.stream(torch.cuda.Stream()):
        while not ended.is_set():
            losses.append(problem.step())
            time.sleep(0.02)


def trainer(kind):
    width, rows = (4096, 2048) if kind == "heavy" else (512, 64)
    model = layers(width)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=kind != "eager")
    batch = torch.empty(rows, width, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(batch).square().mean().backward()
        optimizer.step()

    if kind == "eager":
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def train(kind="eager"):
    """Trains until its standard input ends; a line that is a number of MiB has it try to hold that much beside."""
    step, problem, held, wishes = trainer(kind), Problem(), [], []
    ended = threading.Event()

    def listen():
        for line in sys.stdin:
            wishes.append(int(line))
        ended.set()

    listener = threading.Thread(target=listen)
    listener.start()
    losses, solver = [], None
    if kind == "heavy":
        # The host's part waits for copies in a thread of its own, so that the GPU never waits for it.
        solver = threading.Thread(target=solve, args=(problem, losses, ended))
        solver.start()
    steps, shown, reported, queued = 0, 0.0, 0, []
    while not ended.is_set():
        step()
        queued.append(torch.cuda.Event())
        queued[-1].record()
        if len(queued) > 4:
            queued.pop(0).synchronize()
        steps += 1
        if not solver:
            losses.append(problem.step())
        while wishes:
            try:
                held = None
                held = torch.empty(wishes.pop(0) * MIB, dtype=torch.uint8, device="cuda")
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                report(refused=True, step=steps)
        if time.monotonic() - shown >= 0.05 and len(losses) > reported:
            shown, reported = time.monotonic(), len(losses)
            free, total = torch.cuda.mem_get_info()
            report(step=steps, loss=losses[reported - 1], free=free, total=total, at=shown)
    if solver:
        solver.join()
    listener.join()
    torch.cuda.synchronize()


def resumable(path):
    """Trains from its checkpoint on, if there is one; saves one and ends when it is warned."""
    step, problem, done, warned = trainer("eager"), Problem(), 0, []
    signal.signal(signal.SIGUSR1, lambda *_: warned.append(True))
    if os.path.exists(path):
        saved = torch.load(path)
        done = saved["done"]
        problem.weights.copy_(saved["weights"])
    report(begun=done)
    while not warned:
        step()
        loss, done = problem.step(), done + 1
        report(step=done, loss=loss)
    torch.save({"done": done, "weights": problem.weights.cpu()}, path)
    report(saved=done)


# ---- allocations ----


def storm(operations, seed):
    """Random allocations, frees, fills and copies, from a line of input on; what was written is read before it goes."""
    dice, kept, counts = random.Random(seed), [], {"operations": 0, "ooms": 0, "errors": []}
    _, total = torch.cuda.mem_get_info()
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    # One that starts in a full slice has no room for its context: all begin when all have one.
    report(ready=True)
    sys.stdin.readline()

    def operation():
        choice = dice.random()
        if choice < 0.5 or not kept:
            size = int(2 ** dice.uniform(9, 28)) if dice.random() < 0.97 else total // dice.randint(8, 40)
            mark = dice.randrange(256)
            tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
            tensor[:512].copy_(torch.full((512,), mark, dtype=torch.uint8))
            kept.append((tensor, mark))
        elif choice < 0.9:
            tensor, mark = kept.pop(dice.randrange(len(kept)))
            assert bool((tensor[:512].cpu() == mark).all()), "bytes changed"
        elif choice < 0.98:
            with torch.cuda.stream(dice.choice(streams)):
                torch.empty(int(2 ** dice.uniform(9, 24)), dtype=torch.uint8, device="cuda")
        else:
            torch.cuda.empty_cache()

    while counts["operations"] < operations:
        counts["operations"] += 1
        try:
            operation()
        except torch.cuda.OutOfMemoryError:
            counts["ooms"] += 1
            del kept[: len(kept) // 2 + 1]
        except Exception as error:
            counts["errors"].append(f"{type(error).__name__}: {error}"[:300])
            break
    torch.cuda.synchronize()
    report(**counts)


# ---- several processes ----


def receive(queue, answers):
    tensor = queue.get()
    seen = tensor.cpu().sum().item()
    tensor.copy_(torch.full(tensor.shape, 3.0))
    torch.cuda.synchronize()
    del tensor
    answers.put(seen)


def share():
    """A tensor goes to another process, which reads it and writes into it."""
    spawn = torch.multiprocessing.get_context("spawn")
    queue, answers = spawn.Queue(), spawn.Queue()
    child = spawn.Process(target=receive, args=(queue, answers))
    child.start()
    tensor = torch.arange(1000.0).cuda()
    queue.put(tensor)
    seen = answers.get(timeout=60)
    child.join(60)
    report(seen=seen, written=tensor.cpu().sum().item(), child=child.exitcode)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        return torch.full((16,), float(index))


def loader():
    """Worker processes read, memory is pinned, copies overlap."""
    batches = torch.utils.data.DataLoader(Numbers(), batch_size=32, num_workers=2, pin_memory=True)
    sums = [batch.cuda(non_blocking=True).cpu()[:, 0].sum().item() for batch in batches]
    report(batches=len(sums), sum=sum(sums), pinned=True)


def gather(rank, world, port):
    """Data-parallel training over gloo, each rank in a slice of its own."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.distributed.init_process_group("gloo", rank=int(rank), world_size=int(world))
    tensor = torch.full((1000,), float(rank) + 1).cuda()
    torch.distributed.all_reduce(tensor)
    model = torch.nn.parallel.DistributedDataParallel(layers(128, 2), device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.empty(8, 128, device="cuda")).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()
    report(rank=int(rank), sum=tensor.cpu().sum().item(), total=torch.cuda.mem_get_info()[1])
    torch.distributed.destroy_process_group()


def main(command, *words):
    programs = {"tensors": tensors, "compiled": compiled, "replays": replays, "train": train, "resumable": resumable,
                "share": share, "loader": loader, "gather": gather,
                "storm": lambda operations, seed: storm(int(operations), int(seed))}
    programs[command](*words)
    # A thread of autograd drops its last objects a moment after its work. Once Python ends, that aborts the process.
    time.sleep(0.3)


if __name__ == "__main__":
    main(*sys.argv[1:])
