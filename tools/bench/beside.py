#!/usr/bin/env python3
"""Runs a command, and says what services did meanwhile: their processor time, their engine steps.

usage: beside.py [--pid NAME=PID]... [--metrics URL]... [--out FILE] -- COMMAND [ARGUMENT]...
       beside.py --pid router=4711 --metrics http://127.0.0.1:8005/metrics -- bench_serving --num-prompts 64 ...
Exit status: the command's; 1 where a process or a page is not there, 2 wrong arguments. README.md beside this file.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench import figures, processes  # noqa: E402

STEP_METRIC = "tandem_engine_step_seconds"
PAGE_SECONDS = 10


def named_pid(text):
    name, equals, pid = text.partition("=")
    if not (name and equals and pid.isdigit()):
        raise argparse.ArgumentTypeError(f"{text}: NAME=PID")
    return name, int(pid)


def step_histogram(url):
    """ValueError where the page has no engine steps."""
    with urllib.request.urlopen(url, timeout=PAGE_SECONDS) as response:
        histogram = figures.read_histogram(response.read().decode(), STEP_METRIC)
    if histogram is None:
        raise ValueError(f"{url}: no {STEP_METRIC}")
    return histogram


def readings(arguments):
    return (
        {name: processes.cpu(pid) for name, pid in arguments.pid},
        {url: step_histogram(url) for url in arguments.metrics},
    )


def run_beside(arguments):
    """(exit status of the command, report)"""
    cpu_before, steps_before = readings(arguments)
    began = time.monotonic()
    status = subprocess.run(arguments.command, check=False).returncode
    seconds = time.monotonic() - began
    cpu_after, steps_after = readings(arguments)
    cpu = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    return status, {
        "command": arguments.command,
        "seconds": seconds,
        "cpu": {
            name: {"user_seconds": used.user, "system_seconds": used.system, "cores": used.total / seconds}
            for name, used in cpu.items()
        },
        "step_seconds": {url: figures.histogram_gain(steps_before[url], steps_after[url]) for url in steps_after},
    }


def table(found):
    lines = [f"{'processor time':<40}{'user s':>10}{'system s':>10}{'cores':>10}"]
    for name, used in found["cpu"].items():
        lines.append(f"{name:<40}{used['user_seconds']:>10.2f}{used['system_seconds']:>10.2f}{used['cores']:>10.2f}")
    lines.append(f"{'engine step, ms':<40}{'count':>10}{'mean':>10}{'p50':>10}{'p99':>10}")
    for url, step in found["step_seconds"].items():
        cells = "".join(f"{step[f] * 1000:>10.1f}" if f in step else f"{'-':>10}" for f in ("mean", "p50", "p99"))
        lines.append(f"{url:<40}{step['count']:>10}{cells}")
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pid", action="append", default=[], type=named_pid, metavar="NAME=PID")
    parser.add_argument("--metrics", action="append", default=[], metavar="URL", help="a worker's /metrics page")
    parser.add_argument("--out", type=Path, help="file for the report as JSON")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args(argv)
    try:
        status, found = run_beside(arguments)
    except (OSError, ValueError) as error:
        print(f"beside.py: {error}", file=sys.stderr)
        return 1
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
