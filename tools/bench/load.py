#!/usr/bin/env python3
"""Load on a running chat completions endpoint, closed or open loop; a table on stdout and JSON in a file.

usage: load.py [--url http://127.0.0.1:8000] (--concurrency N | --rate R) [--requests N] [--prompt_tokens N|A:B]
               [--answer_tokens N|A:B] [--seed N] [--seconds S] [--timeout S] [--metrics URL]... [--out FILE]
Exit status: 0 all answered, 1 some request failed or the endpoint cannot be asked, 2 wrong arguments.
README.md beside this file says what each figure means.
"""

import argparse
import collections
import dataclasses
import http.client
import ipaddress
import json
import queue
import random
import sys
import threading
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench import figures  # noqa: E402

REQUESTS_MAX = 10_000
CONCURRENCY_MAX = 1024
SECONDS_MAX = 3600
WORDS = "the road tower bridge lamp quiet river stone winter letter green seven morning window story garden".split()
STEP_METRIC = "tandem_engine_step_seconds"


@dataclasses.dataclass
class Job:
    """One request to be: drawn from the seed before the run begins."""

    text: str
    num_tokens: int
    start: float  # seconds after the run's begin; closed loops do not look at it


@dataclasses.dataclass
class Result:
    error: str | None = None
    started: float = 0.0
    ended: float = 0.0
    lateness: float = 0.0
    chunk_times: list = dataclasses.field(default_factory=list)  # of chunks with text
    prompt_tokens: int = 0
    answer_tokens: int = 0


def loopback_address(url):
    """(host, port) of an http URL. ValueError for any host but this machine's loopback."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    is_loopback = host == "localhost"
    if not is_loopback:
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            pass
    if parts.scheme != "http" or not is_loopback:
        raise ValueError(f"{url}: only http on loopback (127.0.0.0/8, ::1, localhost)")
    return host, parts.port or 80


def http_get(url, timeout):
    host, port = loopback_address(url)
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", urllib.parse.urlsplit(url).path or "/")
        response = connection.getresponse()
        body = response.read().decode()
        if response.status != 200:
            raise ConnectionError(f"{url}: status {response.status}")
        return body
    finally:
        connection.close()


class Endpoint:
    def __init__(self, url, timeout):
        self.host, self.port = loopback_address(url)
        self.timeout = timeout
        self.model = json.loads(http_get(url.rstrip("/") + "/v1/models", timeout))["data"][0]["id"]

    def ask(self, text, num_tokens):
        """A Result; what went wrong is its `error`."""
        result = Result(started=time.monotonic())
        try:
            self._stream(text, num_tokens, result)
        except TimeoutError:
            result.error = "timeout"
        except (OSError, http.client.HTTPException) as error:
            result.error = f"connection: {type(error).__name__}"
        except (json.JSONDecodeError, KeyError, IndexError, TypeError) as error:
            result.error = f"unreadable answer: {type(error).__name__}"
        result.ended = time.monotonic()
        return result

    def _stream(self, text, num_tokens, result):
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        deadline = result.started + self.timeout
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self.timeout)
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            response = connection.getresponse()
            if response.status != 200:
                result.error = f"status {response.status}"
                return
            self._read_events(response, deadline, result)
        finally:
            connection.close()
        if result.error is None and result.answer_tokens != num_tokens:
            result.error = "answer of another length than asked for"

    def _read_events(self, response, deadline, result):
        for line in response:
            if time.monotonic() > deadline:
                raise TimeoutError
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return
            event = json.loads(line[len(b"data: ") :])
            if "error" in event:
                result.error = "error event"
                return
            if event.get("usage"):
                result.prompt_tokens = event["usage"]["prompt_tokens"]
                result.answer_tokens = event["usage"]["completion_tokens"]
            for choice in event["choices"]:
                delta = choice["delta"]
                if delta.get("content") or delta.get("reasoning_content"):
                    result.chunk_times.append(time.monotonic())
        result.error = "stream ended without [DONE]"


class PromptMaker:
    """Texts of about as many tokens as asked for: a text of few and one of many words say what a word takes."""

    PROBE_WORDS = (8, 72)

    def __init__(self, endpoint, source):
        counts = []
        for num_words in self.PROBE_WORDS:
            result = endpoint.ask(self._words(source, num_words), 1)
            if result.error is not None:
                raise ConnectionError(f"the probe of {num_words} words failed: {result.error}")
            counts.append(result.prompt_tokens)
        few, many = self.PROBE_WORDS
        self._tokens_per_word = max((counts[1] - counts[0]) / (many - few), 0.1)
        self._tokens_around = counts[0] - few * self._tokens_per_word

    @staticmethod
    def _words(source, count):
        return " ".join(source.choice(WORDS) for _ in range(count))

    def make(self, source, num_tokens):
        return self._words(source, max(1, round((num_tokens - self._tokens_around) / self._tokens_per_word)))


def draw_jobs(arguments, maker):
    source = random.Random(arguments.seed)
    jobs, start = [], 0.0
    for _ in range(arguments.requests):
        text = maker.make(source, source.randint(*arguments.prompt_tokens))
        jobs.append(Job(text, source.randint(*arguments.answer_tokens), start))
        if arguments.rate is not None:
            start += source.expovariate(arguments.rate)
    return jobs


def run_closed(endpoint, jobs, concurrency, seconds):
    waiting, results, lock = queue.SimpleQueue(), [], threading.Lock()
    for job in jobs:
        waiting.put(job)
    begin = time.monotonic()

    def client():
        while time.monotonic() - begin < seconds:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            result = endpoint.ask(job.text, job.num_tokens)
            with lock:
                results.append(result)

    clients = [threading.Thread(target=client) for _ in range(min(concurrency, len(jobs)))]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return results


def run_open(endpoint, jobs, seconds):
    results, lock, running = [], threading.Lock(), threading.Semaphore(CONCURRENCY_MAX)
    begin, threads = time.monotonic(), []

    def client(job):
        result = endpoint.ask(job.text, job.num_tokens)
        running.release()
        result.lateness = max(0.0, result.started - begin - job.start)
        with lock:
            results.append(result)

    for job in jobs:
        if job.start >= seconds:
            break
        time.sleep(max(0.0, begin + job.start - time.monotonic()))
        running.acquire()
        threads.append(threading.Thread(target=client, args=(job,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return results


def report(arguments, endpoint, jobs, results, steps):
    answered = [r for r in results if r.error is None]
    errors = collections.Counter(r.error for r in results if r.error is not None)
    span = max(r.ended for r in results) - min(r.started for r in results) if results else 0.0
    timed = [r for r in answered if r.chunk_times]
    figures_of = figures.summary
    return {
        "url": arguments.url,
        "model": endpoint.model,
        "loop": "closed" if arguments.rate is None else "open",
        "concurrency": arguments.concurrency,
        "rate": arguments.rate,
        "seed": arguments.seed,
        "requests": {"planned": len(jobs), "started": len(results), "answered": len(answered)},
        "errors": dict(sorted(errors.items())),
        "seconds": span,
        "prompt_tokens": sum(r.prompt_tokens for r in answered),
        "answer_tokens": sum(r.answer_tokens for r in answered),
        "tokens_per_second": sum(r.answer_tokens for r in answered) / span if span else 0.0,
        "prompt_tokens_per_second": sum(r.prompt_tokens for r in answered) / span if span else 0.0,
        "requests_per_second": len(answered) / span if span else 0.0,
        "prompt_length": figures_of([r.prompt_tokens for r in answered]),
        "ttft_seconds": figures_of([r.chunk_times[0] - r.started for r in timed]),
        "itl_seconds": figures_of([b - a for r in timed for a, b in zip(r.chunk_times, r.chunk_times[1:])]),
        "tpot_seconds": figures_of(
            [
                (r.chunk_times[-1] - r.chunk_times[0]) / (r.answer_tokens - 1)
                for r in timed
                if r.answer_tokens > 1 and len(r.chunk_times) > 1
            ]
        ),
        "e2e_seconds": figures_of([r.ended - r.started for r in answered]),
        "start_lateness_seconds": figures_of([r.lateness for r in results]),
        "step_seconds": steps,
    }


def table(found):
    lines = [
        f"{found['loop']} loop, {found['requests']['answered']} of {found['requests']['planned']} answered "
        f"in {found['seconds']:.1f} s, {sum(found['errors'].values())} errors",
        f"tokens/s {found['tokens_per_second']:.1f}   prompt tokens/s {found['prompt_tokens_per_second']:.1f}   "
        f"requests/s {found['requests_per_second']:.2f}",
        f"{'ms':<28}{'count':>8}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}",
    ]
    rows = {name: found[f"{name}_seconds"] for name in ("ttft", "itl", "tpot", "e2e")}
    rows |= {f"step {url}": step for url, step in found["step_seconds"].items()}
    for name, row in rows.items():
        cells = "".join(f"{row[f] * 1000:>10.1f}" if f in row else f"{'-':>10}" for f in ("mean", "p50", "p90", "p99"))
        lines.append(f"{name.replace('http://', ''):<28}{row['count']:>8}{cells}")
    lines += [f"error: {kind}: {count}" for kind, count in found["errors"].items()]
    return "\n".join(lines)


def token_range(text):
    low, _, high = text.partition(":")
    bounds = (int(low), int(high or low))
    if not 1 <= bounds[0] <= bounds[1] <= 1 << 20:
        raise argparse.ArgumentTypeError(f"{text}: N or A:B with 1 <= A <= B")
    return bounds


def bounded(kind, low, high):
    def parse(text):
        value = kind(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text}: {low} to {high}")
        return value

    return parse


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    loop = parser.add_mutually_exclusive_group(required=True)
    loop.add_argument("--concurrency", type=bounded(int, 1, CONCURRENCY_MAX), help="closed loop of so many clients")
    loop.add_argument("--rate", type=bounded(float, 0.001, 1000), help="open loop, requests a second")
    parser.add_argument("--requests", type=bounded(int, 1, REQUESTS_MAX), default=32)
    parser.add_argument("--prompt_tokens", type=token_range, default=(128, 128))
    parser.add_argument("--answer_tokens", type=token_range, default=(64, 64))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=bounded(float, 0.1, SECONDS_MAX), default=300, help="no start after that")
    parser.add_argument("--timeout", type=bounded(float, 0.1, SECONDS_MAX), default=120, help="of one request, seconds")
    parser.add_argument("--metrics", action="append", default=[], metavar="URL", help="a worker's /metrics page")
    parser.add_argument("--out", type=Path, help="file for the JSON report")
    arguments = parser.parse_args(argv)
    for url in [arguments.url, *arguments.metrics]:
        try:
            loopback_address(url)
        except ValueError as error:
            parser.error(str(error))
    return arguments


def step_histograms(arguments):
    pages = {}
    for url in arguments.metrics:
        histogram = figures.read_histogram(http_get(url, arguments.timeout), STEP_METRIC)
        if histogram is None:
            raise ConnectionError(f"{url}: no {STEP_METRIC}")
        pages[url] = histogram
    return pages


def main(argv=None):
    arguments = parse_arguments(argv)
    try:
        endpoint = Endpoint(arguments.url, arguments.timeout)
        jobs = draw_jobs(arguments, PromptMaker(endpoint, random.Random(arguments.seed)))
        before = step_histograms(arguments)
        if arguments.rate is None:
            results = run_closed(endpoint, jobs, arguments.concurrency, arguments.seconds)
        else:
            results = run_open(endpoint, jobs, arguments.seconds)
        after = step_histograms(arguments)
    except (OSError, http.client.HTTPException, ValueError) as error:
        print(f"load.py: {error}", file=sys.stderr)
        return 1
    steps = {url: figures.histogram_gain(before[url], after[url]) for url in arguments.metrics}
    found = report(arguments, endpoint, jobs, results, steps)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 1 if found["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
