"""The simulated driver on a node, and the ways in which containers get it.

In place of those of NVIDIA's container toolkit there are a runtime and a CDI document with the simulated driver.
"""

import json
import pathlib
import shutil

HOME = "/opt/simgpu"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
RUNTIME = f"{HOME}/bin/nvidia-container-runtime"
SIMGPU = f"{HOME}/bin/simgpu"
# Made at each boot: the content of GPU memory does not outlive one.
GPUS = "/run/simgpu/gpus"
# The node's processes, which the simulated driver finds there in containers.
PROC = "/run/simgpu/proc"
DOCUMENT = "/etc/cdi/nvidia.yaml"
# The same with each GPU by itself, for a daemon whose `cdi_node` names it.
EACH = "/etc/cdi/simulated.json"
# Name of a GPU's device file in containers, before its index. A real driver shows a container the GPUs whose files are there.
FILE = "/dev/simgpu"
MOST_GPUS = 16


def put(machine, stage):
    """Puts the driver on a machine's disk."""
    for library in LIBRARIES:
        copy(stage / "sim" / library, machine.file(f"{HOME}/lib/{library}"))
    copy(stage / "bin/simgpu", machine.file(SIMGPU))
    copy(pathlib.Path(__file__).with_name("runtime.py"), machine.file(RUNTIME))
    machine.file(DOCUMENT).write_text(json.dumps(document()))
    machine.file(EACH).write_text(json.dumps(each()))


def copy(source, place):
    shutil.copy(source, place)
    place.chmod(0o755)


def install(machine, preset):
    """Plugs the GPUs in, once the machine has booted."""
    machine.run("mkdir", "-p", str(pathlib.Path(GPUS).parent))
    machine.run(SIMGPU, "create", "--preset", preset, GPUS)
    machine.run("chmod", "666", GPUS)


def mount(path, inside=None):
    return {"hostPath": path, "containerPath": inside or path, "options": ["rbind", "rw"]}


def document():
    """The counterpart of the output of `nvidia-ctk cdi generate`: all GPUs with their driver."""
    return {
        "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {
            "env": [f"SIMGPU_NODE={GPUS}", f"LD_LIBRARY_PATH={HOME}/lib"],
            "mounts": [mount(f"{HOME}/lib"), mount(GPUS)],
        }}],
    }


def each():
    """The counterpart of that output on a node of several GPUs: the libraries, and a device file of each GPU."""
    libraries = [mount(f"{HOME}/lib/{library}") for library in LIBRARIES]
    file = lambda index: {"path": f"{FILE}{index}", "hostPath": "/dev/null"}
    return {
        "cdiVersion": "0.5.0", "kind": "simulated.nvidia.com/gpu",
        "devices": [{"name": str(index), "containerEdits": {"deviceNodes": [file(index)]}} for index in range(MOST_GPUS)],
        "containerEdits": {
            "env": [f"SIMGPU_NODE={GPUS}", f"SIMGPU_PROC={PROC}", f"LD_LIBRARY_PATH={HOME}/lib"],
            "mounts": [*libraries, mount(GPUS), mount("/proc", PROC)],
        },
    }
