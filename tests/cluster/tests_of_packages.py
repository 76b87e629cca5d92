"""The packages of a release in a cluster."""

import os
import time

import pods
import release
from chart import Chart
from tests_of_claims import DRA, V100_MIB, ended, installed, publishes, working
from waiting import Failed

COMPONENTS = ("tranched", "dradriver")


def packed_release(bed):
    """The image and the chart as a release packs them: helm installs the package, and a claim of 0.5 has half of a GPU.

    They stay installed for the tests of claims that follow, or another image and the chart's folder where they cannot be packed.
    """
    bed.clear()
    bed.chart.uninstall()
    begun = time.monotonic()
    try:
        archive, package = release.packed(bed.cluster.cell)
    except Failed as failed:
        publishes(bed)
        if os.environ.get("TRANCHE_REQUIRE") == "all" or not isinstance(failed, release.Lacking):
            raise
        bed.say(f"SKIP: {failed}")
        return
    name, identity = release.identity(archive)
    bed.say(f"packed in {time.monotonic() - begun:.1f} s: {name} {identity[:19]}, {archive.stat().st_size / 1e6:.0f} MB, and {package.name}")
    bed.cluster.load("release", archive)
    repository, tag = name.rsplit(":", 1)
    chart = Chart(bed.cluster, package)
    installed(bed, chart, {**DRA, "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}})
    for component in COMPONENTS:
        [status] = chart.pod(component)["status"]["containerStatuses"]
        bed.expect(status["imageID"] == identity, f"the image of {component} is {status['imageID']}, and {identity} was packed")
    working(bed, "half", 500)
    pods.runs(bed.api, "half")
    report = pods.report(bed.api, "half")
    seen = report["device"]["total_bytes"] >> 20
    bed.say(f"a claim of 0.5 sees {seen} MiB; 20 GiB more: {report['beyond'][0] and report['beyond'][0]['error']}")
    bed.expect(seen == V100_MIB // 2, f"half sees {seen} MiB of {V100_MIB}")
    bed.expect(report["beyond"][0] is not None, "half was granted 20 GiB beyond its memory")
    ended(bed, "half")
    bed.expect(not chart.slices(), f"slices are left: {chart.slices()}")
