"""Pods and resource claims: their specifications, and waits for their states."""

import json
import time

from node import IMAGE
from waiting import Failed, until

WORK = "workload --memory 1Gi --beyond {beyond} --launches 20; exec workload --memory 1Gi --seconds 36000 --sync 4 --report /tmp/report"


def pod(name, command=None, limits=None, claims=(), **spec):
    """A pod of one container `main`. Without a command it sleeps."""
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "resources": {}}
    if command:
        container["command"] = ["sh", "-c", command]
    if limits:
        container["resources"]["limits"] = limits
    body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    if claims:
        container["resources"]["claims"] = [{"name": name} for name in claims]
        body["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in claims]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def working(name, profile, beyond="20Gi"):
    """A pod with a slice of a profile that prints its report once and then launches kernels until its end."""
    return pod(name, WORK.format(beyond=beyond), {f"tranche.dev/{profile}": 1})


def claim(name, device_class="gpu.tranche.dev", count=1, **capacity):
    """A ResourceClaim for devices of a class, each with these amounts of its capacities, such as memory="8Gi"."""
    exactly = {"deviceClassName": device_class, "count": count}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}


def phase(api, name):
    found = api.get("Pod", name)
    return found["status"]["phase"] if found else None


def runs(api, name, patience=60):
    """Waits until a pod is Running. One that fails, or never runs, is a failure with its events."""
    def look():
        seen = phase(api, name)
        if seen in ("Failed", "Succeeded"):
            raise Failed(f"pod {name} is {seen}: {reason(api, name)}")
        return seen == "Running"

    try:
        until(f"pod {name} to run", look, patience)
    except Failed as failed:
        raise Failed(f"{failed}\n{api.events(name)}") from None


def reason(api, name):
    """Reason and message of a pod's status."""
    status = api.get("Pod", name)["status"]
    return f"{status.get('reason', '')}: {status.get('message', '')}"


def report(api, name, container=None):
    """The first report of a working pod, from its log, or that of a container of it."""
    def look():
        for line in api.logs(name, container=container).splitlines():
            if line.startswith("{"):
                return json.loads(line)
        return None

    return until(f"the report of pod {name}", look)


def present(api, *names):
    """Those of these pods that exist."""
    return [name for name in names if api.get("Pod", name)]


def ends(api, *names):
    """Deletes pods and waits until they are gone. Returns the time since the first was."""
    begun = time.monotonic()
    for name in names:
        api.delete("Pod", name)
    for name in names:
        api.gone("Pod", name)
    return time.monotonic() - begun


def devices(api, driver="gpu.tranche.dev"):
    """Devices of each ResourceSlice of a DRA driver: capacities by pool and device, for tests of DRA."""
    found = [one for one in api.list("ResourceSlice") if one["spec"]["driver"] == driver]
    return {
        one["spec"]["pool"]["name"]: {
            device["name"]: {name: amount["value"] for name, amount in device.get("capacity", {}).items()}
            for device in one["spec"].get("devices", [])
        } for one in found
    }


def allocated(api, name):
    """Results of a ResourceClaim's allocation: device and consumed capacity of each; none where it waits."""
    status = api.get("ResourceClaim", name).get("status", {})
    results = status.get("allocation", {}).get("devices", {}).get("results", [])
    return [(one["device"], one.get("consumedCapacity", {})) for one in results]
