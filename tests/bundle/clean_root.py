"""Starts a bundle's services in a root that has nothing else, and asks them one question.

    bwrap --unshare-net --dev-bind / / python3 -m tests.bundle.clean_root ROOT

ROOT holds tandem unpacked in opt/ and the base libraries. To be run in a network namespace of its own, where only
loopback exists. Each service gets ROOT read-only, an own /dev and /proc, no environment and a user that is not root.
Prints the answer's text. Ends with 0 where all three services ended with 0 on SIGTERM.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from tests.e2e.cluster import get, wait_until

CHECKPOINT = "/opt/tandem/checkpoints/tandem-tiny"
PORTS = {"router": 8000, "prefill_worker": 9101, "decode_worker": 9102}  # free: the namespace is new
SETTINGS = {
    "router": ["process.prefill_workers=[127.0.0.1:8101]", "process.decode_workers=[127.0.0.1:8102]", "process.drain_notice=0s"],
    "prefill_worker": ["process.lanes=[tcp]", "process.net_devices=lo", "process.num_threads=1"],
    "decode_worker": ["process.lanes=[tcp]", "process.net_devices=lo", "process.num_threads=1"],
}
QUESTION = "What is 15% of 240?"


class Service:
    def __init__(self, root, name, log):
        self.name, self.log = name, log
        status_read, status_write = os.pipe()
        settings = [f"--set={s}" for s in [f"cluster.model_path={CHECKPOINT}", f"process.instance={name}", *SETTINGS[name]]]
        self._bwrap = subprocess.Popen(
            ["bwrap", "--unshare-user", "--uid", "65532", "--gid", "65532", "--ro-bind", root, "/", "--dev", "/dev"]
            + ["--proc", "/proc", "--clearenv", "--die-with-parent", "--json-status-fd", str(status_write)]
            + [f"/opt/tandem/bin/{name}", *settings],
            stdout=log.open("wb"), stderr=subprocess.STDOUT, pass_fds=[status_write],
        )  # fmt: skip
        os.close(status_write)
        # The first line of it says who the service is; bwrap writes to it once more at the end.
        self._status = os.fdopen(status_read)
        self._pid = json.loads(self._status.readline())["child-pid"]

    def readiness(self):
        code = self._bwrap.poll()
        if code is not None:
            raise AssertionError(f"{self.name} ended with {code}:\n{self.log.read_text(errors='replace')}")
        return get(f"http://127.0.0.1:{PORTS[self.name]}/readyz")

    def stop(self):
        os.kill(self._pid, signal.SIGTERM)
        return self._bwrap.wait(60)


def ask():
    body = {"model": "tandem-tiny", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 256, "temperature": 0}
    request = urllib.request.Request(
        "http://127.0.0.1:8000/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main():
    root = sys.argv[1]
    with tempfile.TemporaryDirectory() as logs:
        services = [Service(root, name, Path(logs) / name) for name in ("prefill_worker", "decode_worker", "router")]
        for service in services:
            wait_until(lambda: service.readiness()[0] == 200, service.readiness, seconds=120)
        print(ask())
        codes = {service.name: service.stop() for service in reversed(services)}
    if any(codes.values()):
        sys.exit(f"the services ended with {codes}")


if __name__ == "__main__":
    main()
