#!/usr/bin/env python3
"""Runs whichever programs are installed here, each bare and in half a GPU, and ends in a table.

usage: programs.py --stage DIR --socket FILE --out DIR [--sim] [--only NAME,...] [--claims FILE]

A program that works bare has to work in the slice too: it sees the slice's memory, meets its own out-of-memory error
beyond it, works afterwards, and moves and computes the same bytes. Writes programs.txt, programs.json and what each run printed
(programs/NAME-*.out, .log) to the output folder. Exit: 0, or 1 where a program works bare and not in the slice, or
where none works; on the simulated GPU also where one that is tried there fails bare.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from checks import ABSENT, MIB, SKIPPED

HERE = Path(__file__).resolve().parent
# Name, its check, most seconds of each run, and whether it can be had on the simulated GPU. The first one, which has
# no needs of its own, states how much memory the slice has.
PROGRAMS = (
    ("C, driver API", "driver_api", 180, True),
    ("Python, ctypes", "ctypes", 60, True),
    ("shared CUDA runtime", "shared_runtime", 60, True),
    ("driver facts", "facts", 300, True),
    ("nvidia-ml-py", "nvml", 30, True),
    ("nvidia-smi", "nvidia_smi", 60, False),
    ("nvitop", "nvitop", 60, True),
    ("gpustat", "gpustat", 60, True),
    ("cuda.bindings", "cuda_bindings", 60, True),
    ("numba", "numba", 120, True),
    ("nvcc, static runtime", "nvcc", 120, False),
    ("PyTorch", "pytorch", 120, False),
    ("Triton", "triton", 180, False),
    ("torch.compile", "torch_compile", 240, False),
    ("NCCL, one rank", "nccl", 120, False),
    ("JAX", "jax", 180, False),
    ("CuPy", "cupy", 120, False),
    ("TensorFlow", "tensorflow", 180, False),
    ("RAPIDS cuDF", "cudf", 120, False),
    ("faiss", "faiss", 120, False),
    ("vLLM", "vllm", 300, False),
    ("llama.cpp", "llama_cpp", 300, False),
    ("Ollama", "ollama", 90, False),
    ("ffmpeg, NVENC and NVDEC", "ffmpeg", 90, False),
    ("Nsight Systems", "nsight_systems", 120, False),
    ("compute-sanitizer", "compute_sanitizer", 120, False),
)
COLUMNS = ("program", "version", "bare", "in slice", "memory seen", "over the cap", "seconds")


class Run:
    """One run of a check: its status, its facts, and how long it took."""

    def __init__(self, command, seconds, log, environment):
        began = time.monotonic()
        # Files, no pipes: what outlives the program would keep a pipe open.
        with log.with_suffix(".out").open("w") as out, log.open("w") as err:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                     env=environment)
            self.late = False
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                self.late = True
            try:
                os.killpg(child.pid, signal.SIGKILL)  # it, or what it left behind
            except ProcessLookupError:
                pass
            child.wait()
        said = log.with_suffix(".out").read_text(errors="replace")
        # What it printed last before it failed without a reason of its own.
        self.last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        self.status, self.seconds = child.returncode, time.monotonic() - began
        self.facts = {}
        for line in said.splitlines():
            name, *values = line.split("\t")
            self.facts.setdefault(name, []).append(values)

    def one(self, name):
        """The last fact of this name."""
        return self.facts[name][-1][0] if self.facts.get(name) else None

    def memory(self):
        """Bytes, and whether these are exact."""
        bytes_, how = self.facts["memory"][-1] if self.facts.get("memory") else (None, None)
        return (int(bytes_), how == "exact") if bytes_ else (None, False)

    def complaint(self, simulated):
        """What is wrong with this run by itself; None where it works."""
        if self.late:
            return f"no end within {self.seconds:.0f} s"
        if self.status != 0:
            return self.one("why") or f"ended with {self.status}: {self.last[:160]}".rstrip(": ")
        wrong = [name for name in ("contents", "computed") if ["wrong"] in self.facts.get(name, [])]
        if simulated and "computed" in wrong:
            wrong.remove("computed")
        return f"{' and '.join(wrong)} wrong" if wrong else None


class Table:
    """Rows of what was tried."""

    def __init__(self, options):
        self.options, self.rows, self.slice_bytes = options, [], None
        self.logs = options.out / "programs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.environment = {**os.environ, "TRANCHE_TESTS": str(options.stage / "tests"), "PYTHONUNBUFFERED": "1",
                            "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, check, seconds, where):
        command = [sys.executable, str(HERE / f"check_{check}.py")]
        if where == "slice":
            name = f"program-{check.replace('_', '-')}"
            tranche = [str(self.options.stage / "bin/tranche"), "--socket", str(self.options.socket)]
            command = [*tranche, "run", "-g", "0.5", "--name", name, "--wait", "20s", "--", *command]
        return Run(command, seconds, self.logs / f"{check}-{where}.log", self.environment)

    def enter(self, name, bare, slice_="", run=None, seconds="", holds=None):
        memory, _ = run.memory() if run else (None, False)
        row = {
            "program": name, "version": (run and run.one("version")) or "", "bare": bare, "in slice": slice_,
            "memory seen": f"{memory // MIB} MiB" if memory else "", "memory_bytes": memory,
            "over the cap": (run and run.one("beyond")) or "", "seconds": seconds, "holds": holds,
        }
        self.rows.append(row)
        print("  ".join(str(row[column]) for column in COLUMNS if row[column]), flush=True)

    def try_one(self, name, check, seconds, on_simulated):
        if self.options.sim and not (on_simulated or self.options.only):
            return self.enter(name, "not tried: needs a GPU")
        bare = self.run(check, seconds, "bare")
        if bare.status == ABSENT and not bare.late:
            return self.enter(name, "not installed")
        if bare.status == SKIPPED and not bare.late:
            return self.enter(name, f"skipped: {bare.one('why')}", run=bare)
        complaint = bare.complaint(self.options.sim)
        if complaint:
            # On a GPU that is this machine's affair; what is tried on the simulated one is known to work there.
            holds = False if self.options.sim else None
            return self.enter(name, f"FAILS: {complaint}", run=bare, seconds=f"{bare.seconds:.1f}", holds=holds)
        inside = self.run(check, seconds, "slice")
        complaint = inside.complaint(self.options.sim) or self.difference(bare, inside)
        took = f"{bare.seconds:.1f} + {inside.seconds:.1f}"
        return self.enter(name, "works", f"FAILS: {complaint}" if complaint else "works", inside, took, not complaint)

    def difference(self, bare, inside):
        """What a slice changes and must not, or has to change and does not."""
        whole, _ = bare.memory()
        seen, exact = inside.memory()
        if self.slice_bytes is None:
            self.slice_bytes = seen
            if not seen or not 0.49 * whole <= seen <= 0.5 * whole:
                return f"half of {whole} bytes looks like {seen}"
        slack = 0 if exact else self.slice_bytes // 50
        if whole and (not seen or abs(seen - self.slice_bytes) > slack):
            return f"sees {seen} bytes of a slice of {self.slice_bytes}"
        for name in ("version", "beyond", "contents", "computed", "same"):
            if bare.facts.get(name) != inside.facts.get(name):
                return f"{name} is {inside.facts.get(name)}, bare {bare.facts.get(name)}"
        return None

    def text(self):
        cells = [COLUMNS] + [tuple(str(row[column]) for column in COLUMNS) for row in self.rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells)

    def write(self):
        (self.options.out / "programs.txt").write_text(self.text() + "\n")
        report = {
            "simulated": self.options.sim, "when": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "slice_bytes": self.slice_bytes, "programs": self.rows,
        }
        (self.options.out / "programs.json").write_text(json.dumps(report, indent=1) + "\n")

    def claims(self, file):
        """In the form of run.sh: name, value, unit, goal, whether it holds."""
        for (_, check, *_), row in zip(self.chosen, self.rows):
            if row["holds"] is not None:
                held = ("works", "yes") if row["holds"] else ("fails", "no")
                print(f"program_{check}", held[0], "", "as bare", held[1], sep="\t", file=file)


def options():
    parser = argparse.ArgumentParser(description="Runs programs bare and in half a GPU.")
    for name in ("stage", "socket", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sim", action="store_true", help="the GPU is simulated: kernels compute nothing")
    parser.add_argument("--only", help="checks by name, with commas")
    parser.add_argument("--claims", type=Path, help="appends a line for each program there")
    return parser.parse_args()


def main():
    table = Table(options())
    only = set(table.options.only.split(",")) if table.options.only else None
    unknown = (only or set()) - {check for _, check, *_ in PROGRAMS}
    if unknown:
        sys.exit(f"programs.py: no check is called {', '.join(sorted(unknown))}")
    # The first is always tried: it measures the slice.
    table.chosen = [it for i, it in enumerate(PROGRAMS) if not only or it[1] in only or i == 0]
    for program in table.chosen:
        table.try_one(*program)
    table.write()
    print("\n" + table.text())
    if table.options.claims:
        with table.options.claims.open("a") as file:
            table.claims(file)
    tried = [row["holds"] for row in table.rows if row["holds"] is not None]
    return 0 if tried and all(tried) else 1


if __name__ == "__main__":
    sys.exit(main())
