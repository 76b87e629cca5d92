"""The control plane: etcd, and Kubernetes' API server, controller manager and scheduler, as they are released."""

import concurrent.futures

import network
from api import Api
from certificates import Authority
from processes import Program
from waiting import until

# The service `kubernetes`: an address of the loopback device, so that pods reach the API server by it without a kube-proxy.
SERVICE_ADDRESS = "10.96.0.1"
PORT = 443


class ControlPlane:
    """The parts of a cluster that are not nodes."""

    def __init__(self, folder, programs):
        self.folder, self.programs = folder, programs
        self.server = f"https://{SERVICE_ADDRESS}:{PORT}"
        self.running = {}
        self.authority = Authority(folder / "pki")
        self.sign()
        self.api = Api(SERVICE_ADDRESS, PORT, self.authority.certificate, *self.files["admin"])

    def sign(self):
        """Makes all certificates, some at the same time."""
        names = [f"DNS:kubernetes{rest}" for rest in ("", ".default", ".default.svc")]
        sign, config = self.authority.sign, self.authority.kubeconfig
        wanted = {
            "apiserver": (sign, "apiserver", "/CN=kube-apiserver", *names, f"IP:{SERVICE_ADDRESS}", f"IP:{network.CONTROL}"),
            "apiserver-kubelet": (sign, "apiserver-kubelet", "/O=system:masters/CN=apiserver-kubelet"),
            "front-proxy": (sign, "front-proxy", "/CN=front-proxy"),
            "admin": (sign, "admin", "/O=system:masters/CN=admin"),
            "admin-config": (config, "admin-config", "/O=system:masters/CN=admin", self.server),
            "controllers": (config, "controllers", "/CN=system:kube-controller-manager", self.server),
            "scheduler": (config, "scheduler", "/CN=system:kube-scheduler", self.server),
            "accounts": (self.authority.signing_key, "accounts"),
        }
        with concurrent.futures.ThreadPoolExecutor() as pool:
            begun = {name: pool.submit(*call) for name, call in wanted.items()}
            self.files = {name: future.result() for name, future in begun.items()}

    def admit(self, node, address):
        """Files of a node's identity, by the names that they get there."""
        certificate, key = self.authority.sign(f"{node}-server", f"/CN={node}", f"DNS:{node}", f"IP:{address}")
        config = self.authority.kubeconfig(node, f"/O=system:nodes/CN=system:node:{node}", self.server)
        return {"ca.crt": self.authority.certificate, "kubelet-server.crt": certificate, "kubelet-server.key": key,
                "kubelet.kubeconfig": config}

    def start(self):
        network.lay(SERVICE_ADDRESS)
        # Durability across a crash of the host is not needed.
        self.go("etcd", "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn",
                "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
                "--listen-peer-urls", "http://127.0.0.1:2380")
        self.start_api_server()
        for name in ("etcd", "kube-apiserver"):
            self.running[name].check()
        until("the API server", lambda: self.running["kube-apiserver"].check() and self.api.ready())
        self.go("kube-controller-manager", "--kubeconfig", self.files["controllers"], "--leader-elect=false",
                "--use-service-account-credentials", "--service-account-private-key-file", self.files["accounts"][0],
                "--root-ca-file", self.authority.certificate)
        self.start_scheduler()
        # Pods cannot be created before it exists.
        until("the account of pods", lambda: self.api.get("ServiceAccount", "default"))

    def start_scheduler(self, configuration=None):
        """Starts the scheduler, or starts it again with a configuration of profiles."""
        options = ["--kubeconfig", self.files["scheduler"], "--leader-elect=false"]
        if "kube-scheduler" in self.running:
            self.running["kube-scheduler"].kill()
        if configuration:
            # With a file, the client and the election are taken from it alone.
            client = f"clientConnection: {{kubeconfig: {self.files['scheduler']}}}\nleaderElection: {{leaderElect: false}}\n"
            file = self.folder / "scheduler.yaml"
            file.write_text(configuration + client)
            options = ["--config", file]
        self.go("kube-scheduler", *options)

    def start_api_server(self):
        private, public = self.files["accounts"]
        certificate, key = self.files["apiserver"]
        kubelet_certificate, kubelet_key = self.files["apiserver-kubelet"]
        proxy_certificate, proxy_key = self.files["front-proxy"]
        self.go("kube-apiserver",
                "--etcd-servers", "http://127.0.0.1:2379", "--advertise-address", network.CONTROL,
                "--secure-port", PORT, "--service-cluster-ip-range", "10.96.0.0/24",
                # Webhooks are called at their pods' addresses: nothing here serves those of services.
                "--enable-aggregator-routing",
                "--proxy-client-cert-file", proxy_certificate, "--proxy-client-key-file", proxy_key,
                "--requestheader-client-ca-file", self.authority.certificate,
                "--requestheader-allowed-names", "front-proxy", "--requestheader-username-headers", "X-Remote-User",
                "--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
                "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
                "--client-ca-file", self.authority.certificate,
                "--tls-cert-file", certificate, "--tls-private-key-file", key,
                "--kubelet-certificate-authority", self.authority.certificate,
                "--kubelet-client-certificate", kubelet_certificate, "--kubelet-client-key", kubelet_key,
                "--kubelet-preferred-address-types", "InternalIP",
                "--service-account-issuer", "https://kubernetes.default.svc",
                "--service-account-key-file", public, "--service-account-signing-key-file", private)

    def go(self, name, *options):
        log = self.folder / "logs" / f"{name}.log"
        self.running[name] = Program(name, [self.programs / name, *options], log)
