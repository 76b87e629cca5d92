"""Teams with Kueue, on two nodes of eight GPUs each."""

import kueue
import teams

QUOTAS, NONE = (4000, 2000, 2000, 8000), (0, 0, 0, 0)
# How often each job has to be preempted for four more of d's GPUs.
LEAST = {"b-4-gg": 1, "c-4-gg": 1}
# Jobs of jobs.yaml, and the totals of the four teams in thousandths after each; then further ones, and the jobs that wait.
BORROWED = [
    ("a-1-1-jupyter", (1000, 0, 0, 0)), ("a-1-g", (2000, 0, 0, 0)), ("a-2-gg", (4000, 0, 0, 0)),
    ("b-1-g06", (4000, 600, 0, 0)), ("b-2-g04", (4000, 1000, 0, 0)), ("b-3-g", (4000, 2000, 0, 0)),
    ("b-4-gg", (4000, 4000, 0, 0)), ("c-1-g05", (4000, 4000, 500, 0)), ("c-2-g03", (4000, 4000, 800, 0)),
    ("c-3-g02", (4000, 4000, 1000, 0)), ("c-4-gg", (4000, 4000, 3000, 0)), ("c-5-g", (4000, 4000, 4000, 0)),
    ("d-1-gggg", (4000, 4000, 4000, 4000)),
]
QUEUED = [("a-3-gg", (1, 1, 1, 0)), ("a-4-gg", (2, 1, 1, 0)), ("b-5-gg", (2, 2, 1, 0)), ("c-6-gg", (2, 2, 2, 0))]


def prepared(bed, claims):
    """A scheduler that packs, Kueue, queues with no job in them, and the documented sizes: of the DRA driver or the plugin."""
    if ready(bed):
        teams.clear(bed)
    bed.clear()
    bed.chart.uninstall()
    for node in bed.cluster.nodes:
        # It takes what a device plugin has offered for that one's until then.
        node.restart_kubelet()
    bed.cluster.control.start_scheduler(kueue.document("scheduler.yaml"))
    bed.chart.install(wait="120s", files=[kueue.DOCUMENTS / ("values-claims.yaml" if claims else "values.yaml")])
    kueue.installed(bed)
    teams.queues(bed)


def ready(bed):
    """Whether Kueue is here."""
    return bed.api.get("CustomResourceDefinition", "clusterqueues.kueue.x-k8s.io") is not None


def kueue_teams(bed):
    """The published states of four teams on sixteen GPUs, number for number, by Kueue's account and in running pods."""
    prepared(bed, claims=False)
    states(bed)


def kueue_teams_claims(bed):
    """The same states and jobs with the DRA driver's sizes in the device plugin's place."""
    prepared(bed, claims=True)
    states(bed)


def states(bed):
    """Each job in its turn, and the totals after it."""
    jobs = teams.documented()
    for name, totals in BORROWED:
        bed.api.apply(jobs[name])
        teams.reaches(bed, name, (totals, NONE))
    bed.say(f"13 jobs fill sixteen GPUs: {teams.running(bed)}")
    bed.api.apply(teams.training("d-2-gg", 2))
    teams.reaches(bed, "d-2-gg", ((4000, 2000, 4000, 6000), (0, 1, 0, 0)), ((4000, 4000, 2000, 6000), (0, 0, 1, 0)))
    bed.say(f"after d-2-gg {teams.totals(bed)}, preempted {teams.preemptions(bed)}")
    bed.api.apply(teams.training("d-3-gg", 2))
    teams.reaches(bed, "d-3-gg", (QUOTAS, (0, 1, 1, 0)))
    bed.say(f"after d-3-gg {teams.totals(bed)}, preempted {teams.preemptions(bed)}")
    bed.expect(teams.preemptions(bed) == LEAST, f"preempted: {teams.preemptions(bed)}")
    for name, waiting in QUEUED:
        bed.api.apply(teams.training(name, 2))
        teams.reaches(bed, name, (QUOTAS, waiting))
    for name in ("d-1-gggg", "d-2-gg", "d-3-gg"):
        bed.api.delete("Job", name, "team-d")
    teams.reaches(bed, "the end of d's jobs", ((8000, 4000, 4000, 0), (0, 1, 1, 0)))
    bed.expect(teams.preemptions(bed) == LEAST, f"preempted: {teams.preemptions(bed)}")
    bed.say(f"what d left is divided: {teams.totals(bed)}")
