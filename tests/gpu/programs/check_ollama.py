"""Ollama: a server of its own, on a port of its own, finds the GPU; no model is fetched."""

import os
import re
import socket
import subprocess
import time

from checks import command, fact, fail, folder, output

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def found(log):
    """The line in which it states the GPU that it will compute on."""
    for line in log.read_text(errors="replace").splitlines():
        if "inference compute" in line and "library=cuda" in line.lower():
            return re.search(r'total="?([\d.]+) ([MGT]iB)', line)
    return None


def main():
    ollama = command("ollama")
    made, place = folder()
    environment = {**os.environ, "OLLAMA_HOST": f"127.0.0.1:{free_port()}", "OLLAMA_MODELS": str(place),
                   "HOME": str(place)}
    fact("version", output(ollama, "--version", env=environment).strip().split()[-1])
    log = place / "serve.log"
    with log.open("w") as to:
        server = subprocess.Popen([ollama, "serve"], stdout=to, stderr=to, env=environment)
    try:
        until = time.monotonic() + 45
        while not (device := found(log)) and time.monotonic() < until and server.poll() is None:
            time.sleep(0.2)
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
    if not device:
        fail("it names no CUDA device within 45 s: " + log.read_text(errors="replace").strip()[-160:])
    fact("memory", int(float(device.group(1)) * UNITS[device.group(2)]), "about")
    made.cleanup()


main()
