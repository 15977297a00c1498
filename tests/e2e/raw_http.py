"""HTTP by hand: a socket that says exactly the bytes it is told to, and leaves in every way a client can."""

import dataclasses
import http.client
import json
import select
import socket
import struct
import urllib.parse


@dataclasses.dataclass
class Response:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def error(self):
        """The error object of the OpenAI API. Fails where the body is none, or says more than it may."""
        assert self.headers["Content-Type"].startswith("application/json"), self.body
        document = json.loads(self.body)
        assert list(document) == ["error"] and set(document["error"]) == {"message", "type", "param", "code"}, document
        return document["error"]


class _Reader:
    """What http.client reads responses from: one buffer for all of them, so that none swallows the next one's bytes."""

    def __init__(self, file):
        self._file = file

    def makefile(self, *_):
        return self

    def close(self):
        pass

    def __getattr__(self, name):
        return getattr(self._file, name)


class RawHttp:
    """One connection to the router (or any http://host:port)."""

    def __init__(self, url, timeout=300, receive_buffer_bytes=0):
        parts = urllib.parse.urlsplit(url)
        self.sock = socket.socket()
        if receive_buffer_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.sock.settimeout(timeout)
        self.sock.connect((parts.hostname, parts.port))
        self._file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """FIN, and reads no more."""
        self._file.close()
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def post(self, body, headers=(), path="/v1/chat/completions"):
        """Sends a whole request; a body that is no bytes is sent as JSON."""
        self.send(post_head(len(as_bytes(body)), headers, path) + as_bytes(body))

    def response(self):
        """The next response, whole."""
        incoming = self.stream()
        return Response(incoming.status, incoming.headers, incoming.read())

    def stream(self):
        """The next response once its head is here; its lines can be read as they come."""
        incoming = http.client.HTTPResponse(_Reader(self._file))
        incoming.begin()
        return incoming

    def line(self):
        """The next line, as it comes."""
        return self._file.readline()

    def has_news(self):
        """Whether bytes have come that are not read yet, or the server's end of the connection. Waits for none."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def is_closed_by_server(self):
        """Waits for the server's FIN; ConnectionResetError where it says RST instead."""
        return self._file.read(1) == b""

    def half_close(self):
        """FIN, and goes on reading."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """RST, as a client that dies."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def as_bytes(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def post_head(content_length, headers=(), path="/v1/chat/completions"):
    lines = [f"POST {path} HTTP/1.1", "Host: test", "Content-Type: application/json", *headers]
    if content_length is not None:
        lines.append(f"Content-Length: {content_length}")
    return "\r\n".join(lines + ["", ""]).encode()


def events(body):
    """The data of each event of a stream, [DONE] included; comments are skipped."""
    for block in body.decode().split("\n\n"):
        data = [line.removeprefix("data: ") for line in block.splitlines() if line.startswith("data: ")]
        assert len(data) <= 1, block
        yield from data
