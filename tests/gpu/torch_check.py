#!/usr/bin/env python3
"""Checks, inside a slice, that PyTorch sees the slice and lives with its cap.

usage: torch_check.py [--allocator caching|expandable]

Prints one tab-separated line for each claim: name, value, unit, goal, yes or no. Exit 77
when PyTorch is not here or has no GPU, 1 when a claim does not hold. The allocator has to
be chosen before torch is imported, so each is a run of its own.
"""

import ctypes
import os
import shutil
import subprocess
import sys

MIB = 1 << 20
SKIPPED = 77


def choose_allocator():
    allocator = sys.argv[2] if len(sys.argv) == 3 and sys.argv[1] == "--allocator" else "caching"
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return allocator


class Claims:
    """The claims made so far; each is printed as it is made."""

    def __init__(self, prefix):
        self.prefix, self.all_hold = prefix, True

    def make(self, name, value, unit, goal, holds):
        self.all_hold &= bool(holds)
        print(f"torch_{self.prefix}_{name}", value, unit, goal, "yes" if holds else "no", sep="\t", flush=True)


def driver_total():
    total = ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    return total.value


def smi_total_mib():
    """nvidia-smi's memory column, or None where there is no nvidia-smi."""
    if not shutil.which("nvidia-smi"):
        return None
    asked = ["nvidia-smi", "--query-gpu=memory.total,uuid", "--format=csv,noheader,nounits"]
    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    lines = answer.stdout.strip().splitlines()
    return int(lines[0].split(",")[0]) if answer.returncode == 0 and lines else None


def views(torch, claims):
    free, total = torch.cuda.mem_get_info()
    driver = driver_total()
    claims.make("mem_get_info_total_mib", total // MIB, "MiB", f"driver's {driver // MIB}", total == driver)
    claims.make("mem_get_info_free_mib", free // MIB, "MiB", "at most total", free <= total)
    properties = torch.cuda.get_device_properties(0).total_memory
    claims.make("properties_total_mib", properties // MIB, "MiB", f"{driver // MIB}", properties == driver)
    smi = smi_total_mib()
    if smi is not None:
        # nvidia-smi rounds, and may count reserved memory: within 2 % is the slice, not the whole GPU.
        close = abs(smi - driver // MIB) * 50 <= driver // MIB
        claims.make("nvidia_smi_total_mib", smi, "MiB", f"near {driver // MIB}", close)


def fill(torch, block_mib):
    kept = []
    try:
        while True:
            kept.append(torch.empty(block_mib * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return kept, True
    except RuntimeError as error:
        print(f"torch_check: not an out-of-memory error: {error}", file=sys.stderr)
        return kept, False


def cap(torch, claims):
    _, total = torch.cuda.mem_get_info()
    free_before, _ = torch.cuda.mem_get_info()
    kept, clean = fill(torch, 256)
    smaller, clean_again = fill(torch, 16)
    got = (len(kept) * 256 + len(smaller) * 16) * MIB
    claims.make("oom_is_an_oom", int(clean and clean_again), "", "1", clean and clean_again)
    claims.make("got_mib", got // MIB, "MiB", f"at most {total // MIB}", got <= total)
    claims.make("got_permille_of_free", got * 1000 // max(1, free_before), "permille", ">= 980",
                got * 1000 >= free_before * 980)
    del kept, smaller
    torch.cuda.empty_cache()
    free_after, _ = torch.cuda.mem_get_info()
    claims.make("given_back_mib", (free_before - free_after) // MIB, "MiB", "<= 64 kept",
                free_before - free_after <= 64 * MIB)


def recovery(torch, claims):
    a = torch.randn(512, 512, device="cuda")
    product = (a @ torch.eye(512, device="cuda")).sub(a).abs().max().item()
    claims.make("works_after_oom", product, "", "< 0.01", product < 0.01)
    again, clean = fill(torch, 256)
    claims.make("fills_again", len(again), "blocks", ">= 1", clean and len(again) >= 1)


def main():
    allocator = choose_allocator()
    try:
        import torch
    except ImportError:
        print("torch_check: PyTorch is not installed here", file=sys.stderr)
        return SKIPPED
    if not torch.cuda.is_available():
        print("torch_check: PyTorch finds no GPU here", file=sys.stderr)
        return SKIPPED
    claims = Claims(allocator)
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    views(torch, claims)
    cap(torch, claims)
    recovery(torch, claims)
    return 0 if claims.all_hold else 1


if __name__ == "__main__":
    sys.exit(main())
