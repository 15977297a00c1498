"""Keys, TLS, request ids and what is logged, through real processes."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request

import httpx
import openai
import pytest

from tests.e2e.asking import request
from tests.e2e.cluster import HOST, MODEL, Cluster, Options, get, wait_until

SECRET = "a prompt that nobody else may read"


def ask(cluster, path, key=None, body=None, headers=None):
    """(status, headers, text)"""
    all_headers = {"Content-Type": "application/json"} | (headers or {})
    if key is not None:
        all_headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(cluster.url + path, data, all_headers), timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def test_keys_open_the_paths_of_their_kind_and_are_never_told(fresh_cluster, tmp_path, monkeypatch):
    keys = tmp_path / "keys"
    keys.write_text("# two clients\nfirst-client-key\nsecond-client-key\n")
    keys.chmod(0o600)
    monkeypatch.setenv("TANDEM_TEST_ADMIN_KEYS", "the-admin-key")
    auth = {"api_keys_file": str(keys), "admin_keys_env": "TANDEM_TEST_ADMIN_KEYS"}
    with fresh_cluster(router={"auth": auth}) as cluster:
        for key in ("first-client-key", "second-client-key", "the-admin-key"):
            with cluster.openai(api_key=key) as client:
                assert client.chat.completions.create(**request(max_tokens=2)).usage.completion_tokens == 2
        with cluster.openai(api_key="wrong-key-for-all") as client, pytest.raises(openai.AuthenticationError) as refusal:
            client.chat.completions.create(**request(max_tokens=2))
        assert refusal.value.code == "invalid_api_key" and "wrong-key" not in str(refusal.value)
        assert ask(cluster, "/health_generate")[0] == 401
        assert ask(cluster, "/health_generate", "first-client-key")[0] == 200
        for path in ("/health", "/readyz", "/metrics", "/openapi.json"):
            assert ask(cluster, path)[0] == 200
        assert ask(cluster, "/v1/loads", "first-client-key")[0] == 401
        assert ask(cluster, "/v1/loads", "the-admin-key")[0] == 200
        shown = cluster.router.log.read_text() + ask(cluster, "/statusz", "the-admin-key")[2]
        shown += ask(cluster, "/metrics")[2] + ask(cluster, "/server_info", "the-admin-key")[2]
        for key in ("first-client-key", "second-client-key", "the-admin-key", "wrong-key-for-all"):
            assert key not in shown


def test_a_file_without_keys_stops_the_start(micro, tmp_path):
    (tmp_path / "keys").write_text("# none\n")
    options = Options(router={"auth": {"api_keys_file": str(tmp_path / "keys")}}, start_order=("router",))
    with pytest.raises(AssertionError, match="has no key"), Cluster(tmp_path / "cluster", micro, options):
        pass


@pytest.mark.parametrize("level", ["none", "summary", "parameters", "prompts"])
def test_prompts_are_logged_where_it_is_asked_for_alone(fresh_cluster, level):
    router = {} if level == "summary" else {"log_requests": level}
    with fresh_cluster(router=router) as cluster:
        body = {"model": MODEL, "messages": [{"role": "user", "content": SECRET}], "max_tokens": 2, "temperature": 0.25}
        status, headers, text = ask(cluster, "/v1/chat/completions", body=body, headers={"X-Request-Id": "trace-17"})
        assert status == 200 and headers["x-request-id"] == "trace-17"
        status, headers, text = ask(cluster, "/v1/chat/completions", body=body)
        assert headers["x-request-id"] == json.loads(text)["id"]
        cluster.wait_at_rest()
        log = cluster.router.log.read_text()
    assert (SECRET in log) == (level == "prompts")
    assert ("request ended" in log and "http_req=trace-17" in log) == (level != "none")
    assert ("temperature=0.25" in log) == (level in ("parameters", "prompts"))
    for process in cluster.processes:
        assert process is cluster.router or SECRET not in process.log.read_text()


def make_certificate(folder, name):
    """A self-signed certificate, renamed into place as certificate managers do."""
    new = {kind: folder / f"new.{kind}" for kind in ("crt", "key")}
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
        + ["-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{HOST}", "-keyout", new["key"], "-out", new["crt"]],
        check=True,
        capture_output=True,
    )
    for kind, path in new.items():
        path.rename(folder / f"router.{kind}")
    return folder / "router.crt", folder / "router.key"


def test_a_router_behind_tls_serves_clients_that_know_its_certificate(fresh_cluster, tmp_path):
    certificate, key = make_certificate(tmp_path, "first")
    tls = {"certificate_file": str(certificate), "key_file": str(key)}
    # The harness asks for plain HTTP; the router is ready as soon as an HTTPS client is told so.
    with fresh_cluster(router={"tls": tls}, start_order=("prefill", "decode"), is_to_be_ready=False) as cluster:
        cluster.start_router()
        cluster.url = cluster.url.replace("http:", "https:")
        context = ssl.create_default_context(cafile=str(certificate))

        def readiness():
            try:
                with urllib.request.urlopen(cluster.url + "/readyz", timeout=5, context=context) as answer:
                    return answer.status == 200
            except OSError:
                return False

        wait_until(readiness, lambda: cluster.router.tail())
        assert get(cluster.url.replace("https:", "http:") + "/health")[0] == 0, "there is no plain HTTP beside it"
        http = httpx.Client(verify=context)
        with cluster.openai(http_client=http) as client:
            plain = client.chat.completions.create(**request(max_tokens=12)).choices[0].message.content
            stream = client.chat.completions.create(**request(max_tokens=12), stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == plain
            assert client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "a b " * 1500}], max_tokens=1
            )
        old = ssl.create_default_context()
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("DEFAULT@SECLEVEL=0")
        with pytest.raises(OSError):
            urllib.request.urlopen(cluster.url + "/health", timeout=5, context=old)
