"""A client of the API server over plain HTTP. Objects are dictionaries, as in JSON."""

import http.client
import json
import re
import ssl
import time
import urllib.parse

from waiting import Failed, until

# Kind: where its objects are, and whether they are in namespaces.
KINDS = {
    "ClusterQueue": ("apis/kueue.x-k8s.io/v1beta2", "clusterqueues", False),
    "ConfigMap": ("api/v1", "configmaps", True),
    "CustomResourceDefinition": ("apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "DaemonSet": ("apis/apps/v1", "daemonsets", True),
    "Deployment": ("apis/apps/v1", "deployments", True),
    "DeviceClass": ("apis/resource.k8s.io/v1", "deviceclasses", False),
    "Event": ("api/v1", "events", True),
    "Job": ("apis/batch/v1", "jobs", True),
    "LocalQueue": ("apis/kueue.x-k8s.io/v1beta2", "localqueues", True),
    "Namespace": ("api/v1", "namespaces", False),
    "Node": ("api/v1", "nodes", False),
    "Pod": ("api/v1", "pods", True),
    "ResourceClaim": ("apis/resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("apis/resource.k8s.io/v1", "resourceclaimtemplates", True),
    "ResourceFlavor": ("apis/kueue.x-k8s.io/v1beta2", "resourceflavors", False),
    "ResourceSlice": ("apis/resource.k8s.io/v1", "resourceslices", False),
    "RuntimeClass": ("apis/node.k8s.io/v1", "runtimeclasses", False),
    "Secret": ("api/v1", "secrets", True),
    "ServiceAccount": ("api/v1", "serviceaccounts", True),
    "Workload": ("apis/kueue.x-k8s.io/v1beta2", "workloads", True),
    "WorkloadPriorityClass": ("apis/kueue.x-k8s.io/v1beta2", "workloadpriorityclasses", False),
}
MERGE = "application/merge-patch+json"


class Refused(Failed):
    """The API server's answer is an error."""

    def __init__(self, status, said):
        super().__init__(f"the API server answers {status}: {said}")
        self.status = status


def path(kind, name="", namespace="default"):
    where, plural, spaced = KINDS[kind]
    within = f"/namespaces/{namespace}" if spaced and namespace else ""
    return f"/{where}{within}/{plural}" + (f"/{name}" if name else "")


class Api:
    """A client with the identity that its certificate names."""

    def __init__(self, address, port, authority, certificate, key):
        self.address, self.port = address, port
        self.tls = ssl.create_default_context(cafile=authority)
        self.tls.load_cert_chain(certificate, key)

    def raw(self, verb, where, body=None, kind="application/json"):
        """The status and the text of an answer."""
        connection = http.client.HTTPSConnection(self.address, self.port, context=self.tls, timeout=30)
        try:
            connection.request(verb, where, body, {"Content-Type": kind, "Accept": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def call(self, verb, where, body=None, kind="application/json"):
        status, said = self.raw(verb, where, None if body is None else json.dumps(body), kind)
        if status >= 300:
            raise Refused(status, said)
        return json.loads(said)

    def ready(self):
        try:
            return self.raw("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def create(self, thing):
        namespace = thing["metadata"].get("namespace", "default")
        return self.call("POST", path(thing["kind"], namespace=namespace), thing)

    def apply(self, text):
        """Creates what documents of YAML describe, as written; unknown fields are refused."""
        for document in text.split("\n---\n"):
            kind = re.search("^kind: (.*)$", document, re.MULTILINE).group(1)
            namespace = re.search("namespace: ([a-z0-9-]+)", document)
            where = path(kind, namespace=namespace.group(1) if namespace else "default")
            status, said = self.raw("POST", f"{where}?fieldValidation=Strict", document.encode(), "application/yaml")
            if status != 201:
                raise Refused(status, f"{kind}: {said}")

    def get(self, kind, name, namespace="default"):
        """The object, or nothing where there is none."""
        try:
            return self.call("GET", path(kind, name, namespace))
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def list(self, kind, namespace="default", **selectors):
        """All objects of a kind, such as list("Pod", labelSelector="app=it"); of all namespaces where that is empty."""
        query = f"?{urllib.parse.urlencode(selectors)}" if selectors else ""
        return self.call("GET", path(kind, namespace=namespace) + query)["items"]

    def patch(self, kind, name, change, namespace="default"):
        return self.call("PATCH", path(kind, name, namespace), change, MERGE)

    def delete(self, kind, name, namespace="default", grace=None):
        """Begins the end of an object and of what is its own; of one that is gone, nothing."""
        options = {"propagationPolicy": "Background", **({} if grace is None else {"gracePeriodSeconds": grace})}
        try:
            self.call("DELETE", path(kind, name, namespace), options)
        except Refused as refused:
            if refused.status != 404:
                raise

    def logs(self, pod, namespace="default", container=None, previous=False):
        """What a container has printed, by way of the kubelet."""
        query = {"previous": str(previous).lower(), **({"container": container} if container else {})}
        status, said = self.raw("GET", f"{path('Pod', pod, namespace)}/log?{urllib.parse.urlencode(query)}")
        if status >= 300:
            raise Refused(status, said)
        return said

    def events(self, about, namespace="default"):
        """Reason and message of each event of an object, oldest first."""
        found = self.list("Event", namespace, fieldSelector=f"involvedObject.name={about}")
        moment = lambda event: event.get("lastTimestamp") or event.get("eventTime") or ""
        return [(event["reason"], event["message"]) for event in sorted(found, key=moment)]

    def gone(self, kind, name, namespace="default"):
        """Waits until there is no such object. Returns the time that it took."""
        begun = time.monotonic()
        until(f"the end of {kind} {name}", lambda: self.get(kind, name, namespace) is None)
        return time.monotonic() - begun
