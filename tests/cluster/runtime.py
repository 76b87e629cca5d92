#!/usr/bin/env python3
"""A wrapper of runc that adds the GPU driver to containers with NVIDIA_VISIBLE_DEVICES, as NVIDIA's runtime does.

Mounts and variables are those of the CDI document of the node.
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
    """Bundle folder of a `runc create` command; None for other commands."""
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
