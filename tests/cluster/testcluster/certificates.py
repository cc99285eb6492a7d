# SPDX-License-Identifier: Apache-2.0
"""Certificates and kubeconfigs of the test cluster, by openssl. Everything lies below one folder."""

from __future__ import annotations

from pathlib import Path

from .state import API_ADDRESS, API_URL, FIRST_SERVICE_ADDRESS, run


class Authority:
    """One CA; `issue` signs a certificate, `kubeconfig` writes the file that uses it for the API
    server at `server`.
    """

    def __init__(self, folder: Path, server: str = API_URL) -> None:
        self.folder = folder
        self.server = server

    def create(self) -> None:
        self.folder.mkdir(mode=0o700)
        key, crt = self.path("ca.key"), self.path("ca.crt")
        self._key(key)
        run(
            "openssl",
            "req",
            "-x509",
            "-new",
            "-key",
            key,
            "-subj",
            "/CN=paceline-test-ca",
            "-days",
            "30",
            "-out",
            crt,
        )
        self._key(self.path("service-account.key"))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @staticmethod
    def _key(path: str) -> None:
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)

    def issue(self, name: str, subject: str, alternatives: str = "") -> None:
        """Signs `<name>.crt` for the X.509 `subject` (/O=group/CN=user); `alternatives` as in
        subjectAltName.
        """
        key, crt, request = (self.path(f"{name}.{end}") for end in ("key", "crt", "csr"))
        self._key(key)
        run("openssl", "req", "-new", "-key", key, "-subj", subject, "-out", request)
        extensions = "extendedKeyUsage=clientAuth,serverAuth\n"
        if alternatives:
            extensions += f"subjectAltName={alternatives}\n"
        Path(self.path(f"{name}.ext")).write_text(extensions)
        run(
            *(
                "openssl",
                "x509",
                "-req",
                "-in",
                request,
                "-CA",
                self.path("ca.crt"),
                "-CAkey",
                self.path("ca.key"),
            ),
            *("-CAcreateserial", "-days", "30", "-extfile", self.path(f"{name}.ext"), "-out", crt),
        )

    def issue_server(self) -> None:
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        names.append("kubernetes.default.svc.cluster.local")
        addresses = ["127.0.0.1", API_ADDRESS, FIRST_SERVICE_ADDRESS]
        alternatives = ",".join(
            [*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses)]
        )
        self.issue("apiserver", "/CN=kube-apiserver", alternatives)

    def kubeconfig(self, name: str, subject: str) -> Path:
        """Issues a client certificate and writes a kubeconfig that names its files."""
        self.issue(name, subject)
        config = self.folder / f"{name}.kubeconfig"
        config.write_text(f"""apiVersion: v1
kind: Config
clusters:
- name: paceline
  cluster: {{server: "{self.server}", certificate-authority: {self.path("ca.crt")}}}
users:
- name: {name}
  user: {{client-certificate: {self.path(name + ".crt")}, client-key: {self.path(name + ".key")}}}
contexts:
- name: paceline
  context: {{cluster: paceline, user: {name}}}
current-context: paceline
""")
        return config
