"""llama.cpp: the devices that it lists; with a model in TRANCHE_GGUF also its bench, all layers on the GPU."""

import json
import os
import re
import subprocess

from checks import MIB, command, fact, fail, output, skip


def listed(program):
    done = subprocess.run([program, "--list-devices"], capture_output=True, text=True, timeout=60)
    return re.search(r"CUDA0: (.*) \((\d+) MiB", done.stdout + done.stderr)


def main():
    cli = command("llama-cli", "llama-server", "llama-bench")
    shown = subprocess.run([cli, "--version"], capture_output=True, text=True, timeout=60)
    version = re.search(r"version: (.*)", shown.stdout + shown.stderr)
    fact("version", version.group(1) if version else "unknown")
    device = listed(cli)
    if not device:
        skip("it lists no CUDA device: built without CUDA?")
    fact("memory", int(device.group(2)) * MIB, "about")
    model = os.environ.get("TRANCHE_GGUF")
    if model:
        rates = json.loads(output(command("llama-bench"), "-m", model, "-ngl", 99, "-p", 64, "-n", 16, "-r", 1,
                                  "-o", "json", seconds=240))
        if not rates or not all(rate["avg_ts"] > 0 for rate in rates):
            fail("llama-bench measured no tokens")


main()
