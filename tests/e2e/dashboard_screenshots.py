"""The pictures of docs/dashboard.md: a cluster under load of which a worker has died, a timeline, a chat.

    TANDEM_BIN_DIR=... $(tools/python/venv.sh) -m tests.e2e.dashboard_screenshots docs
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

from tests.e2e import cluster as clusters
from tests.e2e.asking import plain
from tests.e2e.browser import Browser
from tests.e2e.cluster import wait_until
from tests.e2e.tool_calls_test import CHECKPOINT, TIMER, WEATHER

LARGEST = 150_000  # bytes of a picture
QUESTIONS = ("What is 17 + 25?", "What is the capital of Italy?", "Count from one to fifty. " * 30)
OF_DECODE = {"kv_cache_tokens": 8192, "hisparse": {"enabled": True, "host_to_device_ratio": 2}}


def keep_asking(cluster, question, is_over):
    with cluster.openai(max_retries=5) as client:
        while not is_over.is_set():
            plain(client, messages=[{"role": "user", "content": question}], max_tokens=200, thinking=True)


def take(page, path):
    page.screenshot(path)
    assert path.stat().st_size < LARGEST, f"{path} has {path.stat().st_size} bytes"
    print(path, path.stat().st_size)


def chat(page, question, **fields):
    page.evaluate("document.querySelector('#thinking').checked = true")
    page.fill("#question", question)
    page.fill("#fields", json.dumps({"temperature": 0} | fields))
    page.click("#send")
    page.wait("document.querySelector('#transcript').lastElementChild.dataset.end !== undefined")


def main():
    folder = Path(sys.argv[1]).resolve()
    options = clusters.Options(
        num_prefill=2, num_decode=2, num_drafts=3, decode=OF_DECODE, router=clusters.WATCHFUL_ROUTER)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch, Browser(Path(scratch)) as browser:
        with clusters.Cluster(Path(scratch) / "cluster", CHECKPOINT, options) as cluster:
            cluster.is_expected_to_log_errors = True
            is_over = threading.Event()
            askers = [threading.Thread(target=keep_asking, args=(cluster, q, is_over)) for q in QUESTIONS]
            for asker in askers:
                asker.start()
            try:
                page = browser.open(cluster.url + "/dashboard", width=1320, height=860)
                wait_until(
                    lambda: cluster.router.metric("tandem_generation_tokens_total") > 4000, lambda: "enough tokens")
                cluster.decodes[1].kill()
                page.wait_text("#troubles li.warning", "is down")
                page.wait_text("#troubles li.warning", "was lost")
                page.wait("document.querySelectorAll('#streams button').length > 0")
                take(page, folder / "dashboard.png")
                page.click("#slow button")
                page.wait("document.querySelectorAll('#timeline-picture rect').length > 5")
                take(page, folder / "dashboard_timeline.png")
            finally:
                is_over.set()
                for asker in askers:
                    asker.join()
            page.click("#timeline button")
            page.prefer("dark")
            page.resize(1000, 720)
            chat(page, "What's the weather in Beijing?", tools=[WEATHER, TIMER])
            chat(page, "22°C and sunny", tools=[WEATHER, TIMER])
            page.evaluate("document.querySelector('#chat-title').scrollIntoView()")
            take(page, folder / "dashboard_chat.png")


if __name__ == "__main__":
    main()
