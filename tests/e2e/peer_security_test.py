"""Tokens and certificates between the services, through real processes: who is let in, who is told why not."""

import socket
import ssl
import subprocess

import pytest

from tests.e2e.asking import request
from tests.e2e.cluster import HOST, binary, get, wait_until

TOKEN, OTHER = "the-token-of-this-cluster", "the-token-of-another-cluster"


def file_with(path, text):
    """Renamed into place, as secrets are renewed."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    fresh.rename(path)
    return str(path)


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """A cluster's own certificate authority."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.ca, self._key = folder, folder / "ca.crt", folder / "ca.key"
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl("req", "-x509", *new_key, "-days", 1, "-subj", "/CN=cluster", "-keyout", self._key, "-out", self.ca)

    def issue(self, name, alternative_name=f"IP:{HOST}"):
        """The TLS settings of a service with a fresh certificate; files of that name are replaced."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        extensions.write_text(f"subjectAltName={alternative_name}\n")
        new_key, new_certificate = key.with_suffix(".key.new"), certificate.with_suffix(".crt.new")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl("req", *curve, "-subj", f"/CN={name}", "-keyout", new_key, "-out", request)
        signer = ["-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", 1]
        openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", new_certificate)
        new_key.rename(key)
        new_certificate.rename(certificate)
        return {"certificate_file": str(certificate), "key_file": str(key), "ca_file": str(self.ca)}


def answer(cluster):
    with cluster.openai() as client:
        return client.chat.completions.create(**request(max_tokens=6)).choices[0].message.content


def refused(worker, role):
    return worker.metric("tandem_strangers_refused_total", role=role)


def test_who_does_not_show_the_token_is_told_so_and_let_in_when_it_does(fresh_cluster, tmp_path):
    files = {role: tmp_path / f"{role}.token" for role in ("router", "prefill", "decode")}
    for role, path in files.items():
        file_with(path, f"{OTHER if role == 'router' else TOKEN}\n")
    peers = {role: {"peers": {"token_file": str(path)}} for role, path in files.items()}
    with fresh_cluster(**peers, is_to_be_ready=False) as cluster:
        told = "process.peers.token_file on both sides"
        wait_until(lambda: told in cluster.router.readiness()[1], lambda: cluster.router.readiness())
        for worker, role in ((cluster.prefill, "prefill"), (cluster.decode, "decode")):
            wait_until(lambda: refused(worker, role) >= 1, lambda: worker.tail())
        file_with(files["router"], f"{TOKEN}\n")
        cluster.wait_ready()
        expected = answer(cluster)

        # The pair that met before goes on; a prefill worker that starts anew does not know decode any more.
        times_read = lambda: cluster.decode.log.read_text().count("token of services read again")
        read_before = times_read()
        file_with(files["decode"], f"{OTHER}\n{TOKEN}\n")
        assert answer(cluster) == expected
        cluster.prefill.kill()
        wait_until(lambda: times_read() > read_before, lambda: cluster.decode.tail())  # it greets in vain meanwhile
        cluster.replace_prefill()
        wait_until(lambda: told in get(cluster.url + "/readyz")[1], lambda: cluster.router.readiness())
        wait_until(lambda: refused(cluster.prefill, "prefill") >= 1, lambda: cluster.prefill.tail())
        file_with(files["decode"], f"{TOKEN}\n")
        cluster.wait_ready()
        assert answer(cluster) == expected
        for process in cluster.processes:
            shown = process.log.read_text() + "".join(get(process.admin + path)[1] for path in ("/statusz", "/metrics"))
            assert TOKEN not in shown and OTHER not in shown


def test_a_cluster_behind_mutual_tls_serves_and_shows_renewed_certificates(fresh_cluster, tmp_path):
    authority = Authority(tmp_path / "authority")
    peers = {role: {"peers": authority.issue(role)} for role in ("router", "prefill", "decode")}
    with fresh_cluster(**peers) as cluster:
        expected = answer(cluster)
        rpc, bootstrap = (tuple(cluster.place(name)) for name in ("decode_rpc0", "prefill_bootstrap0"))
        for place, role in ((rpc, "decode"), (bootstrap, "prefill")):
            shown = ssl.get_server_certificate(place)
            with socket.create_connection(place, timeout=60) as plain:
                plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                assert b"\x00\x00\x00\x04" not in plain.recv(64), "no HTTP/2 settings: there is no plain text here"
            authority.issue(role)
            wait_until(lambda: ssl.get_server_certificate(place) != shown, lambda: f"{role} shows the old certificate")
        # Whoever starts anew connects with the new certificates.
        cluster.decode.kill()
        cluster.restart_decode()
        assert answer(cluster) == expected
        # One of another authority is nobody.
        stranger = Authority(tmp_path / "stranger").issue("decode")
        cluster.decode.kill()
        cluster.options.decode["peers"] = stranger
        cluster.replace_decode()
        wait_until(lambda: cluster.decode.readiness()[0] == 200, lambda: cluster.decode.tail())
        wait_until(lambda: "is down" in cluster.router.readiness()[1], lambda: cluster.router.readiness())
        assert cluster.router.metric("tandem_router_usable_pairs") == 0


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_port_for_everybody_is_refused_unless_strangers_are_kept_out_or_let_in_in_so_many_words(role, tmp_path):
    program = [binary(f"{role}_worker/{role}_worker"), "--set=cluster.model_path=/nowhere", "--set=process.listen_host=0.0.0.0"]

    def start(*settings):
        return subprocess.run([*program, *settings, "--validate_only"], capture_output=True, text=True, timeout=60)

    checked = start()
    assert checked.returncode == 2 and checked.stderr.count("\n") == 1
    assert "process.listen_host 0.0.0.0 can be reached from other machines" in checked.stderr
    assert start("--set=process.peers.insecure=true").returncode == 0
    assert start("--set=process.peers.token_file=/etc/tandem-peers/token").returncode == 0
    half = start("--set=process.peers.certificate_file=/etc/tandem-peers/tls.crt")
    assert half.returncode == 2 and "process.peers.key_file is not" in half.stderr
