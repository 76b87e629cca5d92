#!/usr/bin/env python3
"""runc, with the GPUs' driver in each container whose image or pod asks for it, as NVIDIA's runtime has it.

Reads what to put into the container from the description of the GPUs, and does not know that they are simulated.
"""

import json
import os
import sys

RUNC = "/usr/sbin/runc"
DOCUMENT = "/etc/cdi/nvidia.yaml"


def inject(bundle):
    path = os.path.join(bundle, "config.json")
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    variables = spec["process"].setdefault("env", [])
    wanted = dict(variable.partition("=")[::2] for variable in variables).get("NVIDIA_VISIBLE_DEVICES", "")
    if wanted in ("", "void", "none"):
        return
    with open(DOCUMENT, encoding="utf-8") as file:
        edits = json.load(file)["devices"][0]["containerEdits"]
    variables += edits["env"]
    spec.setdefault("mounts", []).extend(
        {"destination": mount["containerPath"], "source": mount["hostPath"], "type": "bind", "options": mount["options"]}
        for mount in edits["mounts"])
    with open(path, "w", encoding="utf-8") as file:
        json.dump(spec, file)


def bundle(words):
    """Where `runc create` is told that the container is described; nothing for other commands."""
    if "create" not in words:
        return None
    for at, word in enumerate(words):
        if word in ("--bundle", "-b"):
            return words[at + 1]
        if word.startswith("--bundle="):
            return word.partition("=")[2]
    return "."


if __name__ == "__main__":
    if place := bundle(sys.argv[1:]):
        inject(place)
    os.execv(RUNC, [RUNC, *sys.argv[1:]])
