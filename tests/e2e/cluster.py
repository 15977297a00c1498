"""Real processes for tests: a router, prefill and decode workers on loopback, with a checkpoint of random weights.

    with Cluster(folder, checkpoint("v32-micro")) as cluster:
        cluster.openai().chat.completions.create(...)

Each process has its own configuration file, log and admin port in `folder`. Leaving the block stops the processes by
SIGTERM and fails where one does not exit with 0 in time or has logged an error. Ports are free ones below the range
that the kernel hands out to outgoing connections.
"""

import contextlib
import dataclasses
import fcntl
import functools
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import openai
import yaml

from tests.e2e.proxy import Proxy

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
MODEL = "deepseek-v3.2"
# Of both workers, in every test: cuda:0 runs them on a device.
DEVICE = os.environ.get("TANDEM_DEVICE", "cpu")
# Of both workers, where a test does not say: cluster.speculative.num_steps.
DRAFTS = int(os.environ.get("TANDEM_DRAFTS", "0"))
# Bounds of what is waited for: only a failure takes so long, on the slowest machine too.
START_SECONDS = 120
STOP_SECONDS = 60
REST_SECONDS = 60
ANSWER_SECONDS = 300
PORTS = range(20000, 32000)
# A process may get no processor for seconds, and that is nobody's fault: only the limits that a test sets run out.
PATIENT_ROUTER = {
    "peer_silence_max": "1m",
    "queue_timeout": "10m",
    "drain_grace": "10m",
    "http": {
        "idle_timeout": "10m",
        "header_timeout": "10m",
        "body_stall_timeout": "10m",
        "write_stall_timeout": "10m",
    },
}
PATIENT_WORKER = {"peer_silence_max": "1m", "router_silence_max": "2m", "drain_timeout": "10m"}
PATIENT_DECODE = PATIENT_WORKER | {"router_grace": "2m"}
# Where workers die and the answer's end is waited for: nobody else comes who could go on with it.
BRIEF_FAILOVER = {"failover_wait": "100ms"}
# What a crash or a stop shall be noticed by: the peers' silence of a few seconds.
WATCHFUL_ROUTER = {"peer_silence_max": "3s"}
WATCHFUL_WORKER = {"peer_silence_max": "3s"}
# Gauges that are zero at rest: docs/flow_control.md's ledger, as /metrics shows it.
HELD = {
    "tandem_router_requests_in_flight",
    "tandem_router_requests_waiting",
    "tandem_router_body_bytes",
    "tandem_num_running_reqs",
    "tandem_num_queue_reqs",
    "tandem_num_queue_tokens",
    "tandem_kv_pages_used",
    "tandem_kv_transfer_open_epochs",
    "tandem_kv_transfer_oldest_epoch_seconds",
    "tandem_kv_transfer_held_pages",
    "tandem_kv_transfer_outstanding_fetches",
    "tandem_kv_transfer_outstanding_bytes",
    "tandem_kv_transfer_announced_unfetched_bytes",
    "tandem_kv_transfer_pinned_pages",
    "tandem_kv_transfer_announced_undone_bytes",
    "tandem_kv_transfer_lapsing_leases",
    "tandem_num_parked_reqs",
    "tandem_num_no_credit_reqs",
    "tandem_unconfirmed_ends",
    "tandem_live_queued_bytes",
}


@functools.cache
def bin_folder():
    if "TANDEM_BIN_DIR" in os.environ:
        return Path(os.environ["TANDEM_BIN_DIR"])
    asked = subprocess.run(["bazel", "info", "bazel-bin"], cwd=ROOT, check=True, capture_output=True, text=True)
    return Path(asked.stdout.strip())


def binary(target):
    """Path of the built binary of "//folder:name", given as "folder/name"."""
    path = bin_folder() / target
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built: bazel build //{target.replace('/', ':')}")
    return path


def make_checkpoint(folder, config, seed=1):
    subprocess.run(
        [binary("tools/make_checkpoint/make_checkpoint"), f"--config={config}", f"--seed={seed}", f"--out={folder}"],
        check=True,
    )
    return folder


_given_ports = set()


@functools.cache
def _port_locks():
    """A file whose bytes are ports: the process that has locked one may listen there, as long as it lives."""
    return open(Path(tempfile.gettempdir()) / f"tandem-test-ports-{os.getuid()}", "ab")


def _is_mine(port):
    """Takes the port for good: another test process may start between a probe and the listener it is for."""
    if port in _given_ports:
        return False
    locks = _port_locks()
    try:
        fcntl.lockf(locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _given_ports.add(port)
    return True


def free_ports(count):
    """Ports that nobody listens on, all different, given to nobody else as long as this process lives."""
    ports, start = [], random.randrange(len(PORTS))
    for offset in range(len(PORTS)):
        port = PORTS[(start + offset) % len(PORTS)]
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if not _is_mine(port):
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"fewer than {count} free ports in {PORTS}")


def wait_until(condition, what, seconds=START_SECONDS):
    """Polls condition() until it is true and returns its value. AssertionError says what() never came."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what()}")
        time.sleep(0.01)


def get(url, timeout=START_SECONDS):
    """(status, body) of an HTTP GET; (0, reason) where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


class Process:
    """One service: its binary, its configuration, its log."""

    def __init__(self, role, name, folder, config, admin_port):
        self.role = role
        self.name = name  # the role, with a number where there are several of it
        self.admin = f"http://{HOST}:{admin_port}"
        self.log = folder / f"{name}.log"
        path = folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        self.was_killed = False
        self.exit_code = 0  # that a stop must end with
        with open(self.log, "wb") as log:
            self._child = subprocess.Popen(
                [binary(f"{role}/{role}"), f"--config={path}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
            )

    @property
    def pid(self):
        return self._child.pid

    def is_running(self):
        return self._child.poll() is None

    def readiness(self):
        """(status, body) of /readyz. AssertionError with the log's end where the process is gone."""
        if not self.is_running():
            raise AssertionError(f"{self.name} ended with {self._child.returncode}:\n{self.tail()}")
        return get(self.admin + "/readyz")

    def metrics(self):
        """name or name{labels} -> value."""
        status, body = get(self.admin + "/metrics")
        assert status == 200, f"{self.role}: /metrics gave {status}"
        samples = (line.rsplit(" ", 1) for line in body.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, value in samples}

    def metric(self, name, **labels):
        """Sum of the series of that name whose labels include the given ones. KeyError where there is none."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        series = {
            s: v
            for s, v in self.metrics().items()
            if s.split("{")[0] == name and all(label in s for label in wanted)
        }
        if not series:
            raise KeyError(f"{self.role} has no metric {name} with {wanted}")
        return sum(series.values())

    def held(self):
        """The gauges of what requests hold, where they are not zero."""
        metrics = self.metrics()
        values = {name: value for name, value in metrics.items() if name.split("{")[0] in HELD}
        assert values, f"{self.role} has none of {HELD}"
        return {name: value for name, value in values.items() if value != 0}

    def signal(self, number):
        self._child.send_signal(number)

    @contextlib.contextmanager
    def paused(self):
        """Within the block the process does not run: its connections stay, nobody answers."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def kill(self):
        """As a crash: no clean exit is expected of it."""
        self.was_killed = True
        self._child.kill()
        self._child.wait()

    def stop(self, seconds=STOP_SECONDS):
        """SIGTERM, and the exit code; SIGKILL and None where it does not end in time."""
        if self.is_running():
            self._child.terminate()
        return self.wait(seconds)

    def wait(self, seconds=STOP_SECONDS):
        """The exit code of a process that is to end; SIGKILL and None where it does not in time."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
            return None

    def tail(self, lines=30):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def errors(self):
        """Lines of the log that say ERROR (the second word), or that a sanitizer or a failed check wrote."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            words = line.split(" ", 2)
            if words[1:2] == ["ERROR"] or words[1:2] == ["FATAL"] or "Sanitizer" in line or "CHECK failed" in line:
                found.append(line)
        return found


@dataclasses.dataclass
class Options:
    """What tests vary; everything else has one value."""

    chunked_prefill_size: int = 512
    lanes: tuple = ("ucx_shm", "tcp")
    context_length: int = 8192
    kv_cache_tokens: int = 16384
    num_shards: int = 1
    num_prefill: int = 1
    num_decode: int = 1
    num_spare: int = 0  # further workers of each role that the test starts itself: start_prefill(), start_decode()
    further_prefill: tuple = ()  # addresses that the router is given beside the workers'
    further_decode: tuple = ()
    # Further settings of process: of every worker of the role. They replace the patient ones.
    router: dict = dataclasses.field(default_factory=dict)
    prefill: dict = dataclasses.field(default_factory=dict)
    decode: dict = dataclasses.field(default_factory=dict)
    shared: dict = dataclasses.field(default_factory=dict)  # further settings of cluster:
    kv_cache_dtype: str = "fp8_e4m3"
    num_drafts: int = DRAFTS
    prefill_checkpoint: Path | None = None  # where it is to be another than decode's
    prefill_kv_cache_dtype: str | None = None  # the same
    start_order: tuple = ("prefill", "decode", "router")
    is_to_be_ready: bool = True
    is_decode_behind_proxy: bool = False  # the first one: Cluster.proxy stands between the router and it


class Cluster:
    def __init__(self, folder, checkpoint, options=Options()):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True)
        self.options = options
        self.is_expected_to_log_errors = False
        self.router, self.prefills, self.decodes = None, {}, {}  # workers by number
        self.processes = []  # in order of their start
        self.proxy = None
        self._replaced = []
        names = ["router"]
        for number in range(options.num_prefill + options.num_spare):
            names += [f"prefill_rpc{number}", f"prefill_bootstrap{number}", f"prefill_admin{number}"]
        for number in range(options.num_decode + options.num_spare):
            names += [f"decode_rpc{number}", f"decode_admin{number}"]
        self._ports = dict(zip(names, free_ports(len(names))))
        self._shared = {"model_path": str(checkpoint), "context_length": options.context_length}
        self.url = f"http://{HOST}:{self._ports['router']}"

    def __enter__(self):
        try:
            if self.options.is_decode_behind_proxy:
                self.proxy = Proxy(HOST, self._ports["decode_rpc0"])
            for role in self.options.start_order:
                self._start_role(role)
                process = self.processes[-1]
                wait_until(lambda: process.readiness()[0] != 0, lambda: f"{process.name}: {process.readiness()}")
            if self.options.is_to_be_ready:
                self.wait_ready()
        except BaseException:
            self._stop_all()
            self._print_logs()
            raise
        return self

    def wait_ready(self):
        """Until every process is ready and the router can use every pair: it is ready itself with the first one."""
        for process in self.processes:
            wait_until(lambda: process.readiness()[0] == 200, lambda: f"{process.name}: {process.readiness()}")
        running = [process for process in self.processes if process.is_running()]
        prefills, decodes = (sum(p.role == role for p in running) for role in ("prefill_worker", "decode_worker"))
        pairs = self.options.num_shards * prefills * decodes
        wait_until(lambda: self._usable_pairs() == pairs, lambda: f"{self._usable_pairs()} of {pairs} pairs are usable")

    def _usable_pairs(self):
        return self.router.metric("tandem_router_usable_pairs")

    @property
    def prefill(self):
        return self.prefills[0]

    @property
    def decode(self):
        return self.decodes[0]

    def __exit__(self, kind, error, trace):
        exits = self._stop_all()
        if kind is not None:
            self._print_logs()
            return
        for process in self.processes + self._replaced:
            if process.was_killed:
                continue
            code = exits.get(process, process.exit_code)
            assert code == process.exit_code, f"{process.name} ended with {code} on SIGTERM:\n{process.tail()}"
            assert self.is_expected_to_log_errors or not process.errors(), f"{process.log}: {process.errors()}"

    def _stop_all(self):
        """The last one first: a router drains before its workers go."""
        exits = {process: process.stop() for process in reversed(self.processes)}
        if self.proxy is not None:
            self.proxy.close()
        return exits

    def _print_logs(self):
        for process in self.processes + self._replaced:
            print(f"---- end of {process.log}\n{process.tail()}")

    def _start(self, role, number, config, admin_port):
        name = role if number == 0 else f"{role}-{number}"
        process = Process(role, name, self.folder, config, admin_port)
        self.processes.append(process)
        return process

    def _shared_by_all(self):
        return self._shared | {
            "page_size": 64,
            "kv_cache_dtype": self.options.kv_cache_dtype,
            "speculative": {"num_steps": self.options.num_drafts},
        } | self.options.shared

    def _start_role(self, role):
        if role == "router":
            self.start_router()
        elif role == "prefill":
            for number in range(self.options.num_prefill):
                self.start_prefill(number)
        else:
            for number in range(self.options.num_decode):
                self.start_decode(number)

    def start_prefill(self, number=0, **overrides):
        """overrides: further settings of this one, of cluster or of process."""
        ports = self._ports
        process = {
            "instance": f"prefill-{number}",
            "listen_host": HOST,
            "rpc_port": ports[f"prefill_rpc{number}"],
            "bootstrap_port": ports[f"prefill_bootstrap{number}"],
            "admin_host": HOST,
            "admin_port": ports[f"prefill_admin{number}"],
            "kv_cache_tokens": self.options.kv_cache_tokens,
            "chunked_prefill_size": self.options.chunked_prefill_size,
            "lanes": list(self.options.lanes),
            "device": DEVICE,
        } | PATIENT_WORKER | self.options.prefill
        shared = self._shared_by_all()
        if self.options.prefill_checkpoint is not None:
            shared["model_path"] = str(self.options.prefill_checkpoint)
        if self.options.prefill_kv_cache_dtype is not None:
            shared["kv_cache_dtype"] = self.options.prefill_kv_cache_dtype
        config = self._overridden(shared, process, overrides)
        self.prefills[number] = self._start("prefill_worker", number, config, process["admin_port"])

    def _replace(self, process):
        self.processes.remove(process)
        self._replaced.append(process)
        process.log = process.log.rename(process.log.with_suffix(f".{len(self._replaced)}.log"))

    def replace_prefill(self, number=0):
        """A new process at the old addresses, after the old one has been stopped or killed. It may never be of use."""
        self._replace(self.prefills[number])
        self.start_prefill(number)

    def replace_router(self):
        self._replace(self.router)
        self.start_router()

    def replace_decode(self, number=0):
        self._replace(self.decodes[number])
        self.start_decode(number)

    def restart_prefill(self, number=0):
        """As replace_prefill, and waits until all are ready."""
        self.replace_prefill(number)
        self.wait_ready()

    def restart_pair(self):
        """Both sides of a cluster of one pair, neither of which is ready before the other."""
        for process in (self.prefill, self.decode):
            self._replace(process)
        self.start_prefill()
        self.start_decode()
        self.wait_ready()

    def restart_decode(self, number=0):
        self.replace_decode(number)
        self.wait_ready()

    @staticmethod
    def _overridden(shared, process, overrides):
        """A configuration with these settings in the section that has them."""
        in_cluster = {key: value for key, value in overrides.items() if key in shared}
        in_process = {key: value for key, value in overrides.items() if key not in shared}
        return {"cluster": shared | in_cluster, "process": process | in_process}

    def start_decode(self, number=0, **overrides):
        ports = self._ports
        process = {
            "instance": f"decode-{number}",
            "listen_host": HOST,
            "rpc_port": ports[f"decode_rpc{number}"],
            "admin_host": HOST,
            "admin_port": ports[f"decode_admin{number}"],
            "kv_cache_tokens": self.options.kv_cache_tokens,
            "lanes": list(self.options.lanes),
            "device": DEVICE,
        } | PATIENT_DECODE | self.options.decode
        config = self._overridden(self._shared_by_all(), process, overrides)
        self.decodes[number] = self._start("decode_worker", number, config, process["admin_port"])

    def start_router(self):
        ports = self._ports
        process = {
            "served_model_name": MODEL,
            "instance": "router-0",
            "host": HOST,
            "port": ports["router"],
            "num_shards": self.options.num_shards,
            "drain_notice": "0s",
            "prefill_workers": [f"{HOST}:{ports[f'prefill_rpc{n}']}" for n in range(self.options.num_prefill)]
            + list(self.options.further_prefill),
            "decode_workers": [self._decode_address(number) for number in range(self.options.num_decode)]
            + list(self.options.further_decode),
        } | PATIENT_ROUTER | self.options.router
        process["http"] = PATIENT_ROUTER["http"] | self.options.router.get("http", {})
        config = {"cluster": self._shared_by_all(), "process": process}
        self.router = self._start("router", 0, config, ports["router"])

    def place(self, name):
        """(host, port) of one listening place, "decode_rpc0", "prefill_bootstrap0"."""
        return HOST, self._ports[name]

    def addresses(self, role, numbers):
        """Of the gRPC services of these workers, started or not; role: "prefill", "decode"."""
        return [f"{HOST}:{self._ports[f'{role}_rpc{number}']}" for number in numbers]

    def _decode_address(self, number):
        """Where the router finds that decode worker."""
        is_behind_proxy = number == 0 and self.proxy is not None
        return f"{HOST}:{self.proxy.port if is_behind_proxy else self._ports[f'decode_rpc{number}']}"

    def openai(self, **overrides):
        """The official client, without retries of its own: a test wants to see the first answer."""
        arguments = {"base_url": self.url + "/v1", "api_key": "none", "max_retries": 0, "timeout": ANSWER_SECONDS} | overrides
        return openai.OpenAI(**arguments)

    def post(self, body, path="/v1/chat/completions", timeout=ANSWER_SECONDS):
        """(status, headers, body text) of a raw POST; body is bytes or a JSON value."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, response.headers, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def wait_at_rest(self, seconds=REST_SECONDS):
        """Until nothing of any request is left: pages, queue places, transfers."""
        for process in self.processes:
            if process.is_running():
                wait_until(lambda: not process.held(), lambda: f"{process.name} at rest: {process.held()}", seconds)
