"""Keys and certificates of a cluster, made by openssl. They are the identities of all clients, as with kubeadm."""

import base64
import json
import subprocess

# openssl's default configuration would make each certificate one of an authority.
CONFIGURATION = "[req]\ndistinguished_name = name\n[name]\n"


class Authority:
    """The certificate authority of a cluster."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(mode=0o700)
        (folder / "openssl.cnf").write_text(CONFIGURATION)
        self.certificate = folder / "ca.crt"
        self.request("ca", "/CN=cluster", "-addext", "basicConstraints=critical,CA:TRUE")

    def request(self, name, subject, *options):
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        command = ["openssl", "req", "-config", self.folder / "openssl.cnf", "-x509", "-days", "2", "-nodes",
                   "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                   "-subj", subject, "-keyout", key, "-out", certificate, *options]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    def sign(self, name, subject, *addresses):
        """A certificate and its key. Addresses are those of a server: DNS:name or IP:address."""
        options = ["-CA", self.certificate, "-CAkey", self.folder / "ca.key",
                   "-addext", "basicConstraints=critical,CA:FALSE",
                   "-addext", "extendedKeyUsage=clientAuth,serverAuth"]
        if addresses:
            options += ["-addext", f"subjectAltName={','.join(addresses)}"]
        return self.request(name, subject, *options)

    def signing_key(self, name):
        """A private and a public key without a certificate, for the tokens of service accounts."""
        private, public = self.folder / f"{name}.key", self.folder / f"{name}.pub"
        subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-out", private], check=True, capture_output=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
        return private, public

    def kubeconfig(self, name, subject, server):
        """A kubeconfig with the address of the API server and a client's identity. JSON is YAML."""
        certificate, key = self.sign(name, subject)
        data = lambda file: base64.b64encode(file.read_bytes()).decode()
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": data(self.certificate)}}],
            "users": [{"name": "it", "user": {"client-certificate-data": data(certificate), "client-key-data": data(key)}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }))
        return path
