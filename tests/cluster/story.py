"""The tests, in their order, on one cluster."""

import http.client
import time
import traceback

import tests_of_claims as claims
import tests_of_installation as installation
import tests_of_restarts as restarts
import tests_of_slices as slices
from chart import Chart
from cluster import TREE
from waiting import Failed

SHORT = [slices.installs, slices.shares, slices.waits_for_room, slices.ends_at_release]
# The chart is installed in another way by each of the last.
CLAIMS = [claims.publishes, claims.claims_share, claims.claims_wait, claims.claims_end, claims.claims_of_several_gpus,
          claims.parameters, claims.claims_storm, claims.claims_survive_power_cut, claims.lost_gpu_is_tainted]
ALL = [*SHORT, slices.recovers, restarts.kubelet_restarts, restarts.power_cut,
       installation.labels, installation.dynamic, installation.driver_by_device, installation.no_driver,
       *CLAIMS]
# Defects that are known, by the test that shows each. One that is repaired is to be taken out.
KNOWN = {
    "dynamic": "the kubelet itself refuses pods before it asks the plugin, which counts its own refusals alone",
    "driver_by_device": "the kubelet passes no annotation of a pod to the container runtime",
    "no_driver": "readiness asks for the daemon's answer, not for GPUs; helm accepts `maxUnavailable` pods that are not ready",
}


class Bed:
    """What tests are given."""

    def __init__(self, cluster):
        self.cluster, self.api, self.node, self.machine = cluster, cluster.api, cluster.node, cluster.machine
        self.chart = Chart(cluster, TREE / "deviceplugin/chart")
        self.say = cluster.say

    def expect(self, truth, otherwise):
        """What has to hold, with what is so where it does not."""
        if not truth:
            raise Failed(otherwise)

    def clear(self):
        """Removes what a failed test has left."""
        pods = [pod["metadata"]["name"] for pod in self.api.list("Pod")]
        for pod in pods:
            self.api.delete("Pod", pod, grace=0)
        for pod in pods:
            self.api.gone("Pod", pod)

    def metric(self, component, port, name):
        """The sum of a metric over its labels, as Prometheus would fetch it."""
        connection = http.client.HTTPConnection(self.chart.pod(component)["status"]["podIP"], port, timeout=10)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def tell(cluster, tests, names):
    """Runs the tests, or those of these names. Returns the exit status."""
    bed, passed, failed, known = Bed(cluster), 0, [], 0
    for test in [test for test in tests if not names or test.__name__ in names]:
        begun = time.monotonic()
        try:
            test(bed)
        except Exception as failure:
            reason = failure if isinstance(failure, Failed) else traceback.format_exc()
            verdict = "known defect" if test.__name__ in KNOWN else "FAILED"
            if test.__name__ in KNOWN:
                known += 1
            else:
                failed.append(test.__name__)
        else:
            passed += 1
            reason, verdict = "", "ok"
            if test.__name__ in KNOWN:
                reason = "repaired: take it out of KNOWN"
        cluster.say(f"{verdict:6} {test.__name__} ({time.monotonic() - begun:.1f} s): {test.__doc__.splitlines()[0]}")
        if reason:
            print(f"         {reason}", flush=True)
            bed.clear()
    if failed:
        cluster.tell_logs(5)
    print(f"{passed} passed, {len(failed)} failed, {known} known defects")
    return 1 if failed else 0
