"""What Kueue counts of resource claims."""

import kueue
import tests_of_teams
from waiting import holds_for, until

GATE = "DynamicResourceAllocation"
# Goes on where kueue-config.yaml ends, in `resources`.
MAPPING = "  deviceClassMappings:\n    - {name: tranche.dev/devices, deviceClassNames: [gpu.tranche.dev]}\n"
QUEUE = """apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: devices}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [tranche.dev/devices]
      flavors:
        - name: sliced
          resources:
            - {name: tranche.dev/devices, nominalQuota: 1}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: devices, namespace: default}
spec: {clusterQueue: devices}"""
TEMPLATE = """apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: {name}}}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.tranche.dev
            capacity: {{requests: {{memory: 6502Mi, compute: "200"}}}}
            {more}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: devices}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      resourceClaims:
        - {{name: gpu, resourceClaimTemplateName: {name}}}
      containers:
        - name: main
          image: nothing
          resources: {{claims: [{{name: gpu}}]}}"""
SELECTOR = """selectors: [{cel: {expression: "device.driver == 'gpu.tranche.dev'"}}]"""


def kueue_counts_devices(bed):
    """A limit of Kueue: a claim for a fifth of a GPU counts as one device, and a claim with a selector is not admitted."""
    if not tests_of_teams.ready(bed):
        tests_of_teams.prepared(bed, claims=True)
    kueue.installed(bed, features=[GATE], configuration=MAPPING)
    kueue.answers(bed, QUEUE)
    bed.api.apply(TEMPLATE.format(name="fifth", more=""))
    until("its admission", lambda: kueue.usage(bed, "devices") == (1, 0))
    bed.api.apply(TEMPLATE.format(name="other-fifth", more=""))
    until("the second", lambda: kueue.usage(bed, "devices") == (1, 1))
    bed.expect(holds_for(3, lambda: kueue.usage(bed, "devices") == (1, 1)), f"it counts {kueue.usage(bed, 'devices')}")
    bed.say(f"0.2 and 0.2 of a GPU: Kueue counts {kueue.usage(bed, 'devices')[0]} device, and the second job waits")
    bed.api.apply(TEMPLATE.format(name="selected", more=SELECTOR))
    said = until("the refusal", lambda: refusal(bed, "selected"))
    bed.say(f"with a selector: {said}")
    bed.expect("CEL selectors are not supported" in said, said)
    for name in ("fifth", "other-fifth", "selected"):
        bed.api.delete("Job", name)
        bed.api.delete("ResourceClaimTemplate", name)
    until("the end of the jobs", lambda: not bed.api.list("Workload") and not bed.api.list("Pod"))


def refusal(bed, job):
    """The reason for which a job has no quota."""
    reserved = kueue.condition(kueue.workloads(bed, ["default"]).get(job), "QuotaReserved")
    return reserved and reserved.get("message")
