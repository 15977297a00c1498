#!/usr/bin/env python3
"""Which cluster.speculative.num_steps brings a workload the most tokens a second: tries each on a cluster of its own.

usage: tune_mtp.py --bin FOLDER --model FOLDER [--steps 0,1,2,3,5,7] [--concurrency 1,8] [--rounds 3] [--requests FILE]
                   [--samples 16] [--temperature 0] [--max_tokens 128] [--fixed] [--set ROLE:NAME=VALUE ...] [--out FILE]

--bin is where the three services are (`bazel info bazel-bin`). --requests: lines of bodies for /v1/chat/completions;
without it, held-out tasks of tools/train_tiny, which tandem-tiny knows. Every number of steps gets router, prefill and
decode worker on loopback, one after the other and in every round again, so that what else the machine does falls on
all; a round's requests are asked at each concurrency, after a few that are not counted. --set adds settings to a
service ("decode_worker:process.device=cuda:0"); --fixed keeps windows at full length (process.speculative_adaptive
false). Prints a table and what it recommends, and writes the figures to --out.

Tokens do not depend on the number of steps: answers that differ end the run with exit code 1.
"""

import argparse
import concurrent.futures
import contextlib
import json
import math
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HOST = "127.0.0.1"
START_SECONDS = 600
ROLES = ("prefill_worker", "decode_worker", "router")


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]


def get(url):
    """The body of a GET; None where nobody answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.read().decode()
    except OSError:
        return None


def metrics(admin, prefix):
    """{series: value} of those whose names begin with prefix."""
    lines = (get(admin + "/metrics") or "").splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line.startswith(prefix))
    return {series: float(value) for series, value in samples}


@contextlib.contextmanager
def cluster(arguments, num_steps):
    """(URL of a router, admin URL of its decode worker) of three fresh processes."""
    prefill_rpc, bootstrap, prefill_admin, decode_rpc, decode_admin, port = free_ports(6)
    shared = [f"cluster.model_path={arguments.model}"]
    workers = shared + [f"cluster.speculative.num_steps={num_steps}", f"process.listen_host={HOST}",
                        f"process.admin_host={HOST}", f"process.kv_cache_tokens={arguments.kv_cache_tokens}"]
    settings = {
        "prefill_worker": workers + [f"process.rpc_port={prefill_rpc}", f"process.bootstrap_port={bootstrap}",
                                     f"process.admin_port={prefill_admin}"],
        "decode_worker": workers + [f"process.rpc_port={decode_rpc}", f"process.admin_port={decode_admin}",
                                    f"process.speculative_adaptive={'false' if arguments.fixed else 'true'}"],
        "router": shared + [f"process.host={HOST}", f"process.port={port}", "process.served_model_name=tuned",
                            f"process.prefill_workers=[{HOST}:{prefill_rpc}]",
                            f"process.decode_workers=[{HOST}:{decode_rpc}]"],
    }
    for further in arguments.set:
        role, _, setting = further.partition(":")
        settings[role].append(setting)
    with tempfile.TemporaryDirectory(prefix="tune_mtp.") as folder, contextlib.ExitStack() as stack:
        children = []
        for role in ROLES:
            log = stack.enter_context(open(pathlib.Path(folder) / f"{role}.log", "w+"))
            command = [str(pathlib.Path(arguments.bin) / role / role)] + [f"--set={setting}" for setting in settings[role]]
            children.append((role, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT), log))
        try:
            deadline = time.monotonic() + START_SECONDS
            while get(f"http://{HOST}:{port}/readyz") is None:
                for role, child, log in children:
                    if child.poll() is not None:
                        log.seek(0)
                        raise SystemExit(f"error: {role} ended with {child.returncode}:\n{log.read()[-2000:]}")
                if time.monotonic() > deadline:
                    raise SystemExit(f"error: the cluster is not ready after {START_SECONDS} s")
                time.sleep(0.05)
            yield f"http://{HOST}:{port}", f"http://{HOST}:{decode_admin}"
        finally:
            for _, child, _ in reversed(children):
                child.terminate()
            for _, child, _ in children:
                child.wait()


def ask(url, body):
    """(text, reasoning and generated tokens) of one answer."""
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as response:
        answer = json.load(response)
    return answer["choices"][0]["message"], answer["usage"]["completion_tokens"]


def measure(url, admin, bodies, concurrency):
    """Tokens a second, the answers, and what windows and drafts came to."""
    before = metrics(admin, "tandem_spec_")
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(lambda body: ask(url, body), bodies))
    seconds = time.monotonic() - begin
    grown = {series: value - before.get(series, 0) for series, value in metrics(admin, "tandem_spec_").items()}
    return {
        "tokens_per_second": sum(tokens for _, tokens in answers) / seconds,
        "messages": [message for message, _ in answers],
        "windows": sum(v for s, v in grown.items() if s.startswith("tandem_spec_windows_total")),
        "drafted": sum(v for s, v in grown.items() if s.startswith("tandem_spec_drafted_tokens_total")),
        "accepted": sum(v for s, v in grown.items() if s.startswith("tandem_spec_accepted_tokens_total")),
    }


def recommend(rates):
    """rates: {concurrency: {num_steps: tokens a second}}. The best number of steps of each concurrency, and that with the
    best mean of logarithms over all of them; the smaller one where two are as good."""
    best = {concurrency: min(by_steps, key=lambda steps: (-by_steps[steps], steps)) for concurrency, by_steps in rates.items()}
    steps = set.intersection(*(set(by_steps) for by_steps in rates.values()))

    def mean(num_steps):
        return statistics.mean(math.log(by_steps[num_steps] / max(by_steps.values())) for by_steps in rates.values())

    return best, min(steps, key=lambda num_steps: (-mean(num_steps), num_steps))


def workload(arguments):
    if arguments.requests:
        bodies = [json.loads(line) for line in pathlib.Path(arguments.requests).read_text().splitlines() if line.strip()]
    else:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train_tiny"))
        from tasks import mixture

        source = random.Random(arguments.seed)
        names = ["percent, thinking", "word problem, thinking", "retrieval 1k", "percent, chat"]
        bodies = []
        for number in range(arguments.samples):
            document = mixture.EVALUATION[names[number % len(names)]](source)
            messages = [{"role": message["role"], "content": message["content"]} for message in document.messages[:-1]]
            bodies.append({"messages": messages, "chat_template_kwargs": {"thinking": document.thinking}})
    defaults = {"model": "tuned", "max_tokens": arguments.max_tokens, "temperature": arguments.temperature, "seed": 1}
    return [defaults | body for body in bodies]


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", required=True, type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--steps", type=numbers, default=[0, 1, 2, 3, 5, 7])
    parser.add_argument("--concurrency", type=numbers, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--max_tokens", type=int, default=128)
    parser.add_argument("--kv_cache_tokens", type=int, default=32768)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out")
    arguments = parser.parse_args(argv)
    for further in arguments.set:
        role, colon, setting = further.partition(":")
        if role not in ROLES or not colon or "=" not in setting:
            parser.error(f"--set {further}: ROLE:NAME=VALUE, ROLE of {', '.join(ROLES)}")
    return arguments


def main(argv):
    arguments = parse(argv)
    bodies = workload(arguments)
    runs = {}  # (concurrency, num_steps) -> measurements, one a round
    expected = None
    for _ in range(arguments.rounds):
        for num_steps in arguments.steps:
            with cluster(arguments, num_steps) as (url, admin):
                for body in bodies[:2]:
                    ask(url, body)
                for concurrency in arguments.concurrency:
                    run = measure(url, admin, bodies, concurrency)
                    messages = run.pop("messages")
                    expected = expected or messages
                    if messages != expected:
                        print(f"error: answers with {num_steps} steps differ from those before", file=sys.stderr)
                        return 1
                    runs.setdefault((concurrency, num_steps), []).append(run)
    rates = {concurrency: {steps: statistics.median(run["tokens_per_second"] for run in runs[concurrency, steps])
                           for steps in arguments.steps} for concurrency in arguments.concurrency}
    print("| requests at a time | num_steps | tokens/s | against 0 | accept length | drafts that came true |\n|---|---|---|---|---|---|")
    for (concurrency, num_steps), rounds in sorted(runs.items()):
        windows, drafted, accepted = (sum(run[name] for run in rounds) for name in ("windows", "drafted", "accepted"))
        rate = rates[concurrency][num_steps]
        against = f"{rate / rates[concurrency][0]:.2f}" if 0 in rates[concurrency] else ""
        print(f"| {concurrency} | {num_steps} | {rate:.0f} | {against} | {1 + accepted / windows if windows else 1:.2f} | "
              + (f"{accepted / drafted:.1%} |" if drafted else "|"))
    best, overall = recommend(rates)
    for concurrency, num_steps in best.items():
        print(f"{concurrency} at a time: num_steps {num_steps}")
    print(f"for all of them: cluster.speculative.num_steps {overall}"
          + (f", num_draft_tokens {overall + 1}" if overall else ": drafts do not pay here"))
    if arguments.out:
        figures = [{"concurrency": c, "num_steps": s, **run} for (c, s), rounds in sorted(runs.items()) for run in rounds]
        pathlib.Path(arguments.out).write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
