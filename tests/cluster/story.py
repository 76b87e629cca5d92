"""The tests, in their order, on one cluster, which grows by a node for those that want two."""

import http.client
import time
import traceback

import demo
import tests_of_annotations as annotations
import tests_of_claims as claims
import tests_of_counting as counting
import tests_of_installation as installation
import tests_of_moving as moving
import tests_of_packages as packages
import tests_of_restarts as restarts
import tests_of_slices as slices
import tests_of_teams as with_kueue
import tests_of_tour as of_tour
import tests_of_two_nodes as two
from chart import Chart
from cluster import TREE
from waiting import Failed

CLAIMS = [of_tour.tour, packages.packed_release, demo.published_fractions,
          claims.publishes, claims.claims_share, claims.claims_wait, claims.claims_end, claims.whole_gpu_has_its_processes,
          claims.claims_of_several_gpus, claims.claim_of_several,
          claims.parameters, claims.documented_manifest, claims.claims_storm, claims.claims_survive_power_cut, claims.profiles_are_resources,
          claims.claims_are_prepared_in_time, claims.lost_gpu_is_tainted, claims.lost_gpu_evicts]
ANNOTATIONS = [annotations.reads_annotations, annotations.refuses_what_does_not_fit, annotations.ends_with_the_pod,
               annotations.image_cannot_undo_it, annotations.init_container_leaves_its_part, annotations.starts_at_once, annotations.reports_what_has_no_slice, annotations.required_plugin_is_awaited,
               annotations.survives_restarts]
# Its claims after the tour are those of the packed release.
SHORT = [slices.installs, slices.shares, slices.waits_for_room, of_tour.tour, packages.packed_release, claims.claims_share,
         claims.claims_wait, claims.claims_end, claims.claims_storm, claims.claims_survive_power_cut,
         annotations.reads_annotations, annotations.refuses_what_does_not_fit, annotations.ends_with_the_pod,
         annotations.image_cannot_undo_it]
# They come last: no other test reckons with a second node.
TWO_NODES = [two.claims_two_nodes, with_kueue.kueue_teams_claims, with_kueue.kueue_preempts_least, with_kueue.kueue_larger_first,
             counting.kueue_counts_devices, with_kueue.kueue_teams]
# From `labels` on, the chart is installed with other values.
ALL = [slices.installs, slices.shares, slices.waits_for_room, slices.ends_at_release, slices.recovers,
       restarts.kubelet_restarts, restarts.power_cut,
       installation.labels, installation.dynamic, installation.default_runtime, installation.no_driver,
       *CLAIMS, moving.moving, moving.moving_rules, *ANNOTATIONS, *TWO_NODES]
# Known defects, by the test that shows each. A test here that passes is a failure, so that the table stays true.
KNOWN = {
    "kueue_preempts_least": "Kueue 0.15 takes the newest jobs first, whatever their size, until a queue no longer borrows: b falls below its quota, "
                            "and gets it back from c",
    "dynamic": "the kubelet refuses most of these pods without a request to the plugin, which counts its own refusals alone",
}


class Bed:
    """The argument of each test: cluster, chart and helpers."""

    def __init__(self, cluster):
        self.cluster, self.api, self.node, self.machine = cluster, cluster.api, cluster.node, cluster.machine
        self.chart = Chart(cluster, TREE / "deviceplugin/chart")
        self.say = cluster.say

    def expect(self, truth, otherwise):
        """Fails with `otherwise` unless the condition holds."""
        if not truth:
            raise Failed(otherwise)

    def clear(self):
        """Removes the pods of a failed test."""
        pods = [pod["metadata"]["name"] for pod in self.api.list("Pod")]
        for pod in pods:
            self.api.delete("Pod", pod, grace=0)
        for pod in pods:
            self.api.gone("Pod", pod)

    def show(self):
        """Prints the end of the logs of the daemon and of each adapter."""
        for component in ("tranched", "deviceplugin", "dradriver", "nriplugin"):
            try:
                print(f"--- {component}\n" + "\n".join(self.chart.logs(component).splitlines()[-10:]), flush=True)
            except Failed as failed:
                print(f"--- {component}: {failed}", flush=True)

    def metric(self, component, port, name):
        """The sum of a metric over its labels, as Prometheus would fetch it."""
        connection = http.client.HTTPConnection(self.chart.pod(component)["status"]["podIP"], port, timeout=10)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def tell(cluster, tests, names):
    """Runs the tests, or those of these names. Returns the exit status."""
    bed, count = Bed(cluster), {"ok": 0, "FAILED": 0, "known": 0}
    for test in [test for test in tests if not names or test.__name__ in names]:
        if test in TWO_NODES:
            cluster.grow(2)
        begun = time.monotonic()
        verdict, reason = attempt(test, bed)
        count[verdict] += 1
        cluster.say(f"{verdict:6} {test.__name__} ({time.monotonic() - begun:.1f} s): {test.__doc__.splitlines()[0]}")
        if reason:
            print(f"         {reason}", flush=True)
        if verdict == "FAILED":
            bed.show()
        if verdict != "ok":
            bed.clear()
    if count["FAILED"]:
        cluster.tell_logs(5)
    print(f"{count['known']} known defects\n{count['ok']} passed, {count['FAILED']} failed")
    return 1 if count["FAILED"] else 0


def attempt(test, bed):
    """Verdict on a test, and its reason. Only what a test expects in vain can be a known defect."""
    defect = KNOWN.get(test.__name__)
    try:
        test(bed)
    except Failed as failed:
        return ("known", f"{failed}\n         because {defect}") if defect else ("FAILED", str(failed))
    except Exception:
        return "FAILED", traceback.format_exc()
    return ("FAILED", "the defect is repaired: take it out of KNOWN") if defect else ("ok", "")
