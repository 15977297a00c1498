"""A streamed answer that runs until the test lets it end, however fast or slow the machine is.

Nobody reads it, so the router and decode stop it by flow control (docs/flow_control.md) after the bytes that sockets
and buffers take. Each token brings 20 alternatives, more than a kilobyte on the wire: what is ahead of the reader is
some 300 tokens, and 60 by SMALL_BUFFERS, whatever they join to one piece. After a while without room it is parked at
decode: it is under way, but holds no page.
"""

import json
import select

from tests.e2e.asking import LONG_QUESTION, chat
from tests.e2e.raw_http import RawHttp, events

WIDE = {"logprobs": True, "top_logprobs": 20}
LONG = 6000  # tokens
# Tokens of the shortest answer that cannot end unread, by the default buffers and by small ones.
HELD = 1200
HELD_BY_SMALL_BUFFERS = 240
# A whole answer has no reader that could hold it, so this one is merely long: 192,000 tokens.
LONG_WHOLE = {"n": 32, "max_tokens": LONG}
SMALL_BUFFERS = {"stream_credit_bytes": 512, "stream_unsent_bytes_max": 4096}


class HeldStream:
    """Has begun: its first text is here. Further bytes come as they are read."""

    def __init__(self, cluster, messages=LONG_QUESTION, max_tokens=LONG, **fields):
        least = HELD_BY_SMALL_BUFFERS if cluster.options.router | SMALL_BUFFERS == cluster.options.router else HELD
        assert max_tokens >= least, "it might end unread"
        self.connection = RawHttp(cluster.url, receive_buffer_bytes=4096)
        self.connection.post(chat(messages=messages, max_tokens=max_tokens, stream=True, **WIDE, **fields))
        self.response = None
        self._read = b""

    def begin(self):
        """Waits for its first text."""
        self.response = self.connection.stream()
        assert self.response.status == 200, self.response.read()
        while not self._has_text():
            line = self.response.readline()
            assert line, f"it ended before its first text: {self._read}"
            self._read += line
        return self

    def _has_text(self):
        return any(choice["delta"].get("content") for e in events(self._read) for choice in json.loads(e)["choices"])

    def read_until(self, condition):
        """Reads what comes, a little at a time, until condition() is true; AssertionError where the stream ends first."""
        while not condition():
            for _ in range(16):
                if not select.select([self.connection.sock], [], [], 0.01)[0]:
                    break
                line = self.response.readline()
                assert line, f"it ended first: {self._read[-300:]}"
                self._read += line

    def rest(self):
        """Reads it to its end: all its events, the first ones and [DONE] included."""
        told = list(events(self._read + self.response.read()))
        self.connection.close()
        return told

    def reset(self):
        """The client dies: RST."""
        self.connection.reset()

    def close(self):
        """The client closes with bytes unread."""
        self.connection.close()


def finish_reason(told):
    """Of a stream that ended well; AssertionError where it did not."""
    assert told[-1] == "[DONE]", told[-2:]
    (reason,) = [c["finish_reason"] for e in told[:-1] for c in json.loads(e)["choices"] if c["finish_reason"]]
    return reason


def error_of(told):
    """Of a stream that was cut: the error is the last event before [DONE], and no finish reason was given."""
    assert told[-1] == "[DONE]", told[-2:]
    assert not any(c["finish_reason"] for e in told[:-2] for c in json.loads(e)["choices"])
    return json.loads(told[-2])["error"]
