"""The simulated driver on a node, and the ways in which containers get it.

In place of those of NVIDIA's container toolkit there are a runtime and a CDI document with the simulated driver.
"""

import json
import pathlib
import shutil

HOME = "/opt/simgpu"
RUNTIME = f"{HOME}/bin/nvidia-container-runtime"
SIMGPU = f"{HOME}/bin/simgpu"
# Made at each boot: the content of GPU memory does not outlive one.
GPUS = "/run/simgpu/gpus"
DOCUMENT = "/etc/cdi/nvidia.yaml"


def put(machine, stage):
    """Puts the driver on a machine's disk."""
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        copy(stage / "sim" / library, machine.file(f"{HOME}/lib/{library}"))
    copy(stage / "bin/simgpu", machine.file(SIMGPU))
    copy(pathlib.Path(__file__).with_name("runtime.py"), machine.file(RUNTIME))
    machine.file(DOCUMENT).write_text(json.dumps(document()))


def copy(source, place):
    shutil.copy(source, place)
    place.chmod(0o755)


def install(machine, preset):
    """Plugs the GPUs in, once the machine has booted."""
    machine.run("mkdir", "-p", str(pathlib.Path(GPUS).parent))
    machine.run(SIMGPU, "create", "--preset", preset, GPUS)
    machine.run("chmod", "666", GPUS)


def document():
    """The counterpart of the output of `nvidia-ctk cdi generate`: all GPUs with their driver."""
    mount = lambda path: {"hostPath": path, "containerPath": path, "options": ["rbind", "rw"]}
    return {
        "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {
            "env": [f"SIMGPU_NODE={GPUS}", f"LD_LIBRARY_PATH={HOME}/lib"],
            "mounts": [mount(f"{HOME}/lib"), mount(GPUS)],
        }}],
    }
