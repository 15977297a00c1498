"""An API server for tests: EndpointSlices of one namespace, over TLS, with every fault that a watch can meet.

Written from the Kubernetes API documentation: a list has the collection's resourceVersion; a watch sends every change
after the one it names, one JSON object a line, in chunks, and bookmarks where it was asked for them; a version that has
been compacted away is 410 Gone; an object that stops matching the selector is DELETED; errors are Status objects. What
it does wrong, it does because a test said so: refuse(), faults, compact(), stop().
"""

import contextlib
import dataclasses
import http.server
import json
import random
import re
import secrets
import ssl
import subprocess
import threading
import time
import urllib.parse

from tests.e2e.cluster import HOST, free_ports

SLICES = "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices"
REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 410: "Expired", 429: "TooManyRequests"}


@dataclasses.dataclass
class Faults:
    """Chances of what happens to each event of a watch."""

    drop: float = 0
    duplicate: float = 0
    reorder: float = 0  # it is sent after the next one
    delay: float = 0  # by up to a tenth of a second
    cut: float = 0  # the connection ends in the middle of it
    garbage: float = 0  # sent before it


@dataclasses.dataclass
class Change:
    version: int
    before: dict | None
    after: dict | None


@dataclasses.dataclass
class Refusal:
    status: int
    headers: dict
    body: str


def status_object(code, message):
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
        | {"reason": REASONS.get(code, "InternalError"), "code": code}
    )


def labels_match(selector, labels):
    """Equality-based requirements, joined by commas."""
    for requirement in filter(None, selector.split(",")):
        key, operator, value = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", requirement).groups()
        if (labels.get(key) == value) == (operator == "!="):
            return False
    return True


class KubeApi:
    """Serves while its block lasts. `folder` becomes a service account's: token, ca.crt, namespace."""

    def __init__(self, folder, namespace="tandem", bookmark_interval=0.2, seed=1):
        self.folder = folder
        self.namespace = namespace
        self.faults = Faults()
        self.is_compacted_said_by_status = False  # else by an event of a watch that has begun
        self._bookmark_interval = bookmark_interval
        self._random = random.Random(seed)
        self._condition = threading.Condition()
        self._version = 100
        self._compacted = 100
        self._objects = {}  # name -> object
        self._history = []
        self._refusals = {}  # verb -> Refusal
        self._asked = {"list": 0, "watch": 0}
        self._watched_from = []  # versions
        self._num_watches = 0
        self._num_told = 0
        self._generation = 0  # a stop ends what an earlier one began
        self._connections = set()
        self._server = None
        self.port = free_ports(1)[0]
        folder.mkdir()
        (folder / "namespace").write_text(namespace)
        self.new_token()
        self.new_certificate()

    # ---- What the router is given ----

    @property
    def environment(self):
        return {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(self.port)}

    def new_token(self):
        """As the kubelet does before a token's end: from here on no other is good."""
        self.token = secrets.token_urlsafe(24)
        new = self.folder / "token.new"
        new.write_text(self.token + "\n")
        new.rename(self.folder / "token")

    def new_certificate(self, host=f"IP:{HOST}", is_trusted=True):
        """A certificate for that host, signed by itself; ca.crt follows where it is to be trusted."""
        key, certificate = self.folder.parent / "api.key", self.folder.parent / "api.crt"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
            + ["-subj", "/CN=kubernetes", "-addext", f"subjectAltName={host}", "-keyout", key, "-out", certificate],
            check=True,
            capture_output=True,
        )
        if is_trusted:
            (self.folder / "ca.crt").write_text(certificate.read_text())
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)

    # ---- The cluster's state ----

    def put(self, name, labels, addresses, port, port_name="rpc", address_type="IPv4", ready=True, terminating=False):
        """Creates or replaces a slice, all of whose endpoints are alike."""
        conditions = {"ready": ready and not terminating, "serving": ready, "terminating": terminating}
        endpoints = [
            {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "uid": f"uid-{address}-{port}"}}
            for address in addresses
        ]
        with self._condition:
            self._version += 1
            before = self._objects.get(name)
            self._objects[name] = {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": name,
                    "namespace": self.namespace,
                    "labels": dict(labels),
                    "resourceVersion": str(self._version),
                },
                "addressType": address_type,
                "endpoints": endpoints or None,
                "ports": [{"name": port_name, "port": port, "protocol": "TCP"}] if endpoints else None,
            }
            self._history.append(Change(self._version, before, self._objects[name]))
            self._condition.notify_all()

    def delete(self, name):
        with self._condition:
            self._version += 1
            before = self._objects.pop(name)
            self._history.append(Change(self._version, before, None))
            self._condition.notify_all()

    def compact(self):
        """No watch can go on from a version before now."""
        with self._condition:
            self._version += 1
            self._compacted = self._version
            self._history.clear()
            self._condition.notify_all()

    # ---- What it does wrong ----

    def refuse(self, verb, status, retry_after=None, body=None):
        """Answers every "list" or "watch" with this until allow()."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        text = body if body is not None else status_object(status, f"{verb} is refused by the test")
        with self._condition:
            self._refusals[verb] = Refusal(status, headers, text)

    def allow(self):
        with self._condition:
            self._refusals.clear()

    def cut_watches(self):
        """Ends every connection, as a proxy or a server that restarts does."""
        with self._condition:
            self._generation += 1
            self._condition.notify_all()
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(2)

    def asked(self, verb):
        with self._condition:
            return self._asked[verb]

    def watched_from(self):
        """The versions that watches have asked for, in order."""
        with self._condition:
            return list(self._watched_from)

    def num_watches(self):
        """Under way now."""
        with self._condition:
            return self._num_watches

    def num_told(self):
        """Watches so far that have sent an event or a bookmark."""
        with self._condition:
            return self._num_told

    # ---- Serving ----

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server((HOST, self.port), handler, self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self):
        """As a server that is away: nobody listens, every connection has ended. start() brings it back."""
        if self._server is None:
            return
        self._server.shutdown()
        self.cut_watches()
        self._server.server_close()
        self._thread.join()
        self._server = None


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address, handler, api):
        self.api = api
        super().__init__(address, handler)

    def process_request_thread(self, request, client_address):
        # Here, not in accept(): a client that says nothing must not keep others waiting.
        try:
            request.settimeout(10)
            request = self.api._tls.wrap_socket(request, server_side=True)
        except (OSError, ssl.SSLError):
            request.close()
            return
        super().process_request_thread(request, client_address)

    def handle_error(self, request, client_address):
        """A client that is gone is nothing to tell of."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api = None

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        with self.api._condition:
            self.api._connections.add(self.connection)

    def finish(self):
        with self.api._condition:
            self.api._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def _answer(self, status, body, headers=None):
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(data))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        api = self.api
        if self.headers.get("Authorization") != f"Bearer {api.token}":
            return self._answer(401, status_object(401, "Unauthorized"))
        if url.path != SLICES.format(api.namespace):
            return self._answer(404, status_object(404, "the server could not find the requested resource"))
        verb = "watch" if query.get("watch") in ("true", "1") else "list"
        with api._condition:
            api._asked[verb] += 1
            refusal = api._refusals.get(verb)
        if refusal is not None:
            return self._answer(refusal.status, refusal.body, refusal.headers)
        if verb == "list":
            return self._list(query)
        return self._watch(query)

    def _list(self, query):
        api = self.api
        with api._condition:
            selector = query.get("labelSelector", "")
            items = [o for o in api._objects.values() if labels_match(selector, o["metadata"]["labels"])]
            body = {"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": items}
            body["metadata"] = {"resourceVersion": str(api._version)}
            text = json.dumps(body)
        self._answer(200, text)

    # ---- A watch ----

    def _watch(self, query):
        self._has_told = False
        api, version = self.api, int(query["resourceVersion"])
        deadline = time.monotonic() + int(query.get("timeoutSeconds", 300))
        with api._condition:
            api._watched_from.append(version)
            is_gone = version < api._compacted
            generation = api._generation
        if is_gone and api.is_compacted_said_by_status:
            return self._answer(410, status_object(410, "too old resource version"))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with api._condition:
            api._num_watches += 1
        try:
            if is_gone:
                self._send_event("ERROR", json.loads(status_object(410, "too old resource version")))
            else:
                self._send_changes(query, version, deadline, generation)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            with api._condition:
                api._num_watches -= 1

    def _send_changes(self, query, version, deadline, generation):
        api, held = self.api, None
        selector = query.get("labelSelector", "")
        while True:
            with api._condition:
                changes = [c for c in api._history if c.version > version]
                if not changes:
                    remaining = deadline - time.monotonic()
                    if remaining <= 0:
                        return
                    api._condition.wait(min(remaining, api._bookmark_interval))
                    changes = [c for c in api._history if c.version > version]
                if api._generation != generation:
                    raise OSError("cut")
                is_gone = version < api._compacted
                current = api._version
            if is_gone:
                return self._send_event("ERROR", json.loads(status_object(410, "too old resource version")))
            if not changes:
                if held is not None:
                    self._send_event(*held)
                    held = None
                if query.get("allowWatchBookmarks") == "true":
                    version = current
                    self._send_event("BOOKMARK", {"kind": "EndpointSlice", "metadata": {"resourceVersion": str(current)}})
                continue
            for change in changes:
                version = change.version
                event = self._event_of(change, selector)
                if event is None or self._has(api.faults.drop):
                    continue
                if held is None and self._has(api.faults.reorder):
                    held = event
                    continue
                self._send_event(*event)
                if held is not None:
                    self._send_event(*held)
                    held = None

    def _has(self, chance):
        return chance > 0 and self.api._random.random() < chance

    @staticmethod
    def _event_of(change, selector):
        was = change.before is not None and labels_match(selector, change.before["metadata"]["labels"])
        is_now = change.after is not None and labels_match(selector, change.after["metadata"]["labels"])
        if not was and not is_now:
            return None
        last = change.after if is_now else change.before
        metadata = last["metadata"] | {"resourceVersion": str(change.version)}
        return ("DELETED" if not is_now else "MODIFIED" if was else "ADDED"), last | {"metadata": metadata}

    def _send_event(self, kind, event_object):
        faults = self.api.faults
        line = json.dumps({"type": kind, "object": event_object}).encode() + b"\n"
        if self._has(faults.delay):
            time.sleep(self.api._random.random() / 10)
        if self._has(faults.garbage):
            self._send_chunk(b"\x00<html>no event</html>\n")
        if self._has(faults.cut):
            self._send_chunk(line[: self.api._random.randrange(1, len(line))])
            raise OSError("cut in the middle of an event")
        for _ in range(2 if self._has(faults.duplicate) else 1):
            middle = self.api._random.randrange(1, len(line))  # chunks have nothing to do with lines
            self._send_chunk(line[:middle])
            self._send_chunk(line[middle:])
        if not self._has_told:
            self._has_told = True
            with self.api._condition:
                self.api._num_told += 1

    def _send_chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()
