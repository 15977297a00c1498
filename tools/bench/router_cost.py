#!/usr/bin/env python3
"""What the router itself takes: the real binary between bench_serving and workers without a model, one process each.

usage: router_cost.py [--bin_dir DIR] [--model_path DIR] [--seconds N] [--only NAME]... [--out FILE]
Prints a Markdown table. Processor time is the kernel's own count for the router's process (/proc), user and system apart,
so others' work on the machine moves it little; the added latency is by the clock and wants an idle machine.
README.md beside this file says what each row is.
"""

import argparse
import dataclasses
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench import processes  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
MODEL = "deepseek-v3.2"
START_SECONDS = 60
POLL_SECONDS = 0.02


def free_ports(count):
    """Below the range that the kernel gives to outgoing connections."""
    ports = []
    for port in random.sample(range(20000, 32000), 2000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"fewer than {count} free ports")


def get(url):
    """The body; "" where nobody answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.read().decode()
    except OSError:
        return ""


class Setup:
    """A router and its workers, for one measurement."""

    def __init__(self, arguments, step_ms, num_probes=0):
        self.arguments = arguments
        self.benches = []
        prefill, decode, self.port = free_ports(3)
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = tempfile.TemporaryDirectory()
        self.workers = subprocess.Popen(
            [
                arguments.bin_dir / "tools/bench/router_cost/step_workers",
                f"--prefill_port={prefill}", f"--decode_port={decode}", f"--step_ms={step_ms}",
                f"--router_port={self.port}", f"--model={MODEL}", f"--probes={num_probes}",
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        settings = {
            "cluster.model_path": arguments.model_path,
            "process.allow_auto_truncate": "true",
            "process.served_model_name": MODEL,
            "process.port": self.port,
            "process.drain_notice": "0s",
            "process.prefill_workers": f"[127.0.0.1:{prefill}]",
            "process.decode_workers": f"[127.0.0.1:{decode}]",
            "process.max_inflight_requests": 20000,
            "process.http.connections_max": 20000,
            "process.peer_silence_max": "10s",  # a busy machine is no dead worker
        }
        with open(Path(self.folder.name) / "router.log", "wb") as log:
            self.router = subprocess.Popen(
                [arguments.bin_dir / "router/router", *(f"--set={name}={value}" for name, value in settings.items())],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def __enter__(self):
        try:
            if self.workers.stdout.readline().strip() != "listening":
                raise RuntimeError("the fake workers did not start")
            deadline = time.monotonic() + START_SECONDS
            while not get(self.url + "/readyz").startswith("ready"):
                if self.router.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the router did not become ready:\n" + self.log())
                time.sleep(POLL_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def log(self):
        return (Path(self.folder.name) / "router.log").read_text(errors="replace")[-2000:]

    def __exit__(self, *_):
        for process in (*self.benches, self.workers, self.router):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (*self.benches, self.router):
            process.wait(START_SECONDS)
        if self.workers.returncode is None:
            self.workers.communicate(timeout=START_SECONDS)
        self.folder.cleanup()

    def start_probes(self):
        self.workers.stdin.write("go\n")
        self.workers.stdin.flush()

    def end_probes(self):
        """Their figures; the workers are gone afterwards."""
        self.workers.send_signal(signal.SIGTERM)
        stdout, _ = self.workers.communicate(timeout=START_SECONDS)
        found = json.loads(stdout.splitlines()[-1])
        if found["failures"] or not found["before"]:
            raise RuntimeError(f"probes failed: {found}\n{self.log()}")
        return found

    def metric(self, name):
        for line in get(self.url + "/metrics").splitlines():
            if line.split("{")[0].split(" ")[0] == name:
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def bench(self, *flags):
        """bench_serving, started; it ends with the setup at the latest."""
        command = [
            self.arguments.bin_dir / "tools/bench_serving/bench_serving", "--base-url", self.url,
            "--tokenizer", self.arguments.model_path, "--output-file", Path(self.folder.name) / "out.jsonl",
            "--disable-tqdm", *map(str, flags),
        ]  # fmt: skip
        self.benches.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        return self.benches[-1]

    def bench_report(self, bench):
        """Of bench_serving, ended. RuntimeError where a request failed."""
        status = bench.wait()
        report = json.loads((Path(self.folder.name) / "out.jsonl").read_text().splitlines()[-1])
        if status != 0:
            raise RuntimeError(f"bench_serving ended with {status}: {report['failures']}\n{self.log()}")
        return report


@dataclasses.dataclass
class Used:
    """Of a run of bench_serving: its report, and what each process took meanwhile."""

    report: dict
    router: processes.Cpu
    workers: processes.Cpu
    client_cores: float

    def cores(self, cpu):
        return cpu.total / self.report["duration"]

    def shares(self):
        return (
            f"router {self.cores(self.router):.2f}, workers {self.cores(self.workers):.2f}, "
            f"client {self.client_cores:.2f} cores"
        )

    def router_us(self, count):
        user, system = self.router.user / count * 1e6, self.router.system / count * 1e6
        return f"{user + system:.1f} us ({user:.1f} user, {system:.1f} system)"


def measure(setup, *flags):
    before = processes.cpu(setup.router.pid), processes.cpu(setup.workers.pid)
    report = setup.bench_report(setup.bench(*flags))
    after = processes.cpu(setup.router.pid), processes.cpu(setup.workers.pid)
    return Used(report, after[0] - before[0], after[1] - before[1], report["client_cpu_share"])


def lengths(prompt, answer):
    return ("--dataset-name", "random-ids", "--random-range-ratio", 1, "--random-input-len", prompt,
            "--random-output-len", answer)  # fmt: skip


CHAT = ("--backend", "sglang-oai-chat")


def requests_at_a_rate(arguments):
    with Setup(arguments, step_ms=5, num_probes=4) as setup:
        measure(setup, *CHAT, *lengths(200, 8), "--num-prompts", 200)  # warm
        setup.start_probes()
        used = measure(setup, *CHAT, *lengths(200, 8), "--request-rate", 1000, "--num-prompts", 1000 * arguments.seconds)
        probes = setup.end_probes()
    count = used.report["completed"] + probes["before"]["count"]
    rate = used.report["request_throughput"]
    yield f"a request (prompt 200, answer 8 tokens) at {rate:.0f}/s", used.router_us(count), "at most 200 us", used.shares()
    added = probes["before_and_first_token"]
    yield (
        "added latency at that rate, request and first token, P99",
        f"{added['p99_us'] / 1000:.2f} ms (median {added['p50_us'] / 1000:.2f})", "under 1 ms",
        f"{added['count']} probes; before the worker {probes['before']['p99_us'] / 1000:.2f} ms, "
        f"after a token {probes['after_a_token']['p99_us'] / 1000:.2f} ms; sockets and wake-ups of both ends included",
    )  # fmt: skip


def tokens(arguments):
    with Setup(arguments, step_ms=20) as setup:
        measure(setup, *CHAT, *lengths(200, 8), "--num-prompts", 256)
        answer = max(50 * arguments.seconds, 100)
        used = measure(setup, *CHAT, *lengths(200, answer), "--num-prompts", 256, "--warmup-requests", 0)
    count = used.report["total_output_tokens"]
    yield (
        f"a token, 256 streams of {answer}, each token its own write", used.router_us(count), "at most 2 us",
        f"{used.report['output_throughput']:.0f} tokens/s; {used.shares()}; the kernel alone takes "
        f"{write_floor() * 1e6:.1f} us for a write of 250 bytes on loopback",
    )  # fmt: skip


def write_floor(num_writes=100_000):
    """Seconds of the kernel for one write of a token's event to a loopback socket whose other end reads."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as reader:
        writer, _ = server.accept()
        with writer:
            writer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            event, buffer = bytes(250), bytearray(1 << 16)
            system = 0.0
            for _ in range(num_writes // 100):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_stime
                for _ in range(100):
                    writer.send(event)
                system += resource.getrusage(resource.RUSAGE_SELF).ru_stime - before
                received = 0
                while received < 100 * len(event):
                    received += reader.recv_into(buffer)
    return system / num_writes


def full_speed(arguments):
    with Setup(arguments, step_ms=1) as setup:
        measure(setup, *CHAT, *lengths(200, 8), "--num-prompts", 256)
        used = measure(
            setup, *CHAT, *lengths(200, 8), "--max-concurrency", 256, "--num-prompts", 1500 * arguments.seconds
        )
    yield (
        "requests/s, 256 at once (prompt 200, answer 8)", f"{used.report['request_throughput']:.0f}", "",
        f"{used.shares()}; {used.router_us(used.report['completed'])} each",
    )  # fmt: skip


def open_streams(arguments, num_streams=10_000):
    with Setup(arguments, step_ms=1000) as setup:
        measure(setup, *CHAT, *lengths(50, 2), "--num-prompts", 64)
        before = processes.resident_bytes(setup.router.pid)
        bench = setup.bench(*CHAT, *lengths(50, 60), "--request-rate", 1000, "--num-prompts", num_streams)
        most = 0
        while bench.poll() is None and most < num_streams:
            most = max(most, setup.metric("tandem_router_requests_in_flight"))
            time.sleep(POLL_SECONDS)
        resident = processes.resident_bytes(setup.router.pid)
        setup.bench_report(bench)
    yield (
        f"{most:.0f} streams open at once, memory of each", f"{(resident - before) / most / 1024:.1f} KB",
        "under 16 KB", f"resident {before >> 20} MB before, {resident >> 20} MB with them",
    )  # fmt: skip


def large_bodies(arguments, num_bytes=4_000_000):
    words = random.Random(1).choices("the road tower bridge lamp quiet river stone winter letter green".split(), k=50)
    text = " ".join(words * (num_bytes // sum(len(word) + 1 for word in words)))
    with Setup(arguments, step_ms=5, num_probes=2) as setup, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bodies.jsonl"
        count = 4 * arguments.seconds
        path.write_text(json.dumps({"prompt": text, "output_len": 2}) + "\n")
        path.write_text(path.read_text() * count)
        setup.start_probes()
        used = measure(
            setup, *CHAT, "--dataset-name", "custom", "--dataset-path", path, "--num-prompts", count,
            "--request-rate", 4, "--warmup-requests", 0,
        )  # fmt: skip
        probes = setup.end_probes()
        peak = processes.resident_bytes(setup.router.pid)
    each = used.router.total / used.report["completed"]
    yield (
        f"a body of {len(text) / 1e6:.1f} MB, whole: read, parsed, tokenised, cut, sent on",
        f"{each * 1000:.0f} ms ({len(text) / 1e6 / each:.0f} MB/s)", "",
        f"at {used.report['request_throughput']:.1f}/s; small requests beside them wait "
        f"{probes['before']['p99_us'] / 1000:.1f} ms before the worker, P99; resident {peak >> 20} MB",
    )  # fmt: skip


MEASUREMENTS = {
    "requests": requests_at_a_rate,
    "tokens": tokens,
    "full_speed": full_speed,
    "streams": open_streams,
    "bodies": large_bodies,
}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin_dir", type=Path, help="bazel-bin; what Bazel built last where it is not given")
    parser.add_argument("--model_path", type=Path, default=ROOT / "checkpoints/tandem-tiny")
    parser.add_argument("--seconds", type=int, default=20, help="of each measurement, about")
    parser.add_argument("--only", action="append", choices=list(MEASUREMENTS))
    parser.add_argument("--out", type=Path, help="file for the rows as JSON")
    arguments = parser.parse_args(argv)
    if arguments.bin_dir is None:
        asked = subprocess.run(["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, capture_output=True, text=True)
        arguments.bin_dir = Path(asked.stdout.strip())
    rows = []
    print(f"{os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}\n\n| what | figure | aim | beside it |\n|---|---|---|---|")
    for name in arguments.only or MEASUREMENTS:
        for row in MEASUREMENTS[name](arguments):
            rows.append(row)
            print("| " + " | ".join(row) + " |", flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
