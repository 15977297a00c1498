"""The router's /dashboard in a real browser: what an operator sees of a cluster that runs, of one that breaks, and that
nothing which models, clients or workers say becomes part of the page."""

import json
import math
import random
import re

import pytest

from tests.e2e import cluster as clusters
from tests.e2e.browser import Browser
from tests.e2e.cluster import get, wait_until
from tests.e2e.held_stream import HeldStream
from tests.e2e.tool_calls_test import CHECKPOINT, TIMER, WEATHER

MARKUP = "<img src=x onerror=owned=1>"
# Says which timers of the page run.
COUNTED_TIMERS = """
  window.pendingTimers = new Set();
  const [set, clear] = [window.setTimeout, window.clearTimeout];
  window.setTimeout = (work, ...rest) => {
    const id = set(() => { pendingTimers.delete(id); work(); }, ...rest);
    pendingTimers.add(id);
    return id;
  };
  window.clearTimeout = (id) => { pendingTimers.delete(id); clear(id); };
"""
# The page is told of five hundred workers of the kinds that there are, of which one is down.
A_LARGE_CLUSTER = """
  const real = window.fetch;
  window.fetch = async (path, options) => {
    const answer = await real(path, options);
    if (path !== 'debug/state') return answer;
    const state = await answer.json();
    state.workers = Array.from({length: 500}, (_, i) => ({
      ...state.workers[i % 2], address: `10.0.${i >> 8}.${i & 255}:9000`, state: i === 0 ? 'down' : 'up',
    }));
    state.workers_total = 600;
    return new Response(JSON.stringify(state));
  };
"""
IS_HIDDEN = "Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}})"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def trained(browser, tmp_path_factory):
    """The shipped checkpoint, which thinks and calls tools, with drafts; its prefill worker has an odd name."""
    options = clusters.Options(num_drafts=3, prefill={"instance": MARKUP})
    with clusters.Cluster(tmp_path_factory.mktemp("dashboard") / "cluster", CHECKPOINT, options) as cluster:
        yield cluster


@pytest.fixture
def page(browser, trained):
    page = browser.open(trained.url + "/dashboard", before=COUNTED_TIMERS)
    page.wait("document.body.dataset.polling == 'on'")
    yield page
    assert page.complaints == []
    assert all(url.startswith(trained.url + "/") for url in page.asked), page.asked
    assert page.evaluate("typeof owned") == "undefined"
    assert page.evaluate("document.images.length") == 0
    page.close()
    trained.wait_at_rest()


def ask(page, question, thinking=False, **fields):
    """Sends it by the chat box; the selector of the answer's box once it has ended."""
    page.evaluate(f"document.querySelector('#thinking').checked = {json.dumps(thinking)}")
    page.fill("#question", question)
    page.fill("#fields", json.dumps({"temperature": 0, "max_tokens": 200} | fields))
    number = page.evaluate("document.querySelector('#transcript').childElementCount") + 2
    page.click("#send")
    box = f"#transcript > :nth-child({number})"
    page.wait(f"document.querySelector('{box}')?.dataset.end !== undefined")
    return box


def test_a_cluster_that_is_well(page):
    assert page.text("#readiness") == "ready" and page.text("#instance") == "router-0"
    assert page.text("#troubles") == "Nothing that this router sees."
    assert page.text("#pools-note") == "1 of 1 prefill up, 1 of 1 decode up"
    assert page.evaluate("document.querySelectorAll('#workers tbody tr').length") == 2
    assert page.text("#pairs tbody td:nth-child(3)") == "usable" and "/s" in page.text("#pairs tbody td:nth-child(5)")
    assert len(page.asked) >= 11, "the page, its files, the state"
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.prefer("dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.resize(390, 800)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "nothing is cut off on a narrow screen"


def test_the_documentation_names_every_member_of_the_state(trained):
    state = json.loads(get(trained.url + "/debug/state")[1])
    text = (clusters.ROOT / "docs" / "dashboard.md").read_text().split("## `GET /debug/state`")[1]
    lists = [state["workers"][0], state["pairs"][0], state["shards"][0], state["requests"], state["counters"]]
    for member in [*state, *(name for one in lists for name in one)]:
        assert f"`{member}`" in text, member
    for member in set(re.findall(r"^\| `([^|]*)` \|", text, re.MULTILINE)):
        for name in member.split("`, `"):
            assert name in state, f"{name} is named and is not there"


def test_an_answer_with_thinking_and_a_tool_call_and_its_timeline(page):
    box = ask(page, "What's the weather in Beijing?", thinking=True, tools=[WEATHER, TIMER])
    assert page.evaluate(f"document.querySelector('{box}').dataset.end") == "tool_calls", page.text(box)
    assert len(page.text(f"{box} .thinking pre")) > 0
    assert page.text(f"{box} .answer") is None
    assert "get_weather" in page.text(f"{box} .call summary")
    assert json.loads(page.text(f"{box} .call pre")) == {"location": "Beijing"}
    assert page.text("#question-label") == "Result of get_weather"
    box = ask(page, "22°C and sunny", tools=[WEATHER, TIMER])
    assert page.evaluate(f"document.querySelector('{box}').dataset.end") == "stop"
    assert "sunny" in page.text(f"{box} .answer") and page.text(f"{box} .call") is None
    assert page.text("#question-label") == "Message"
    # It was counted: the tiles say so, with drafts.
    page.wait("Number(document.querySelector('[data-tile=\"MTP tokens a step\"] b').textContent) > 1")
    page.wait_text("[data-tile='first token'] b", "s")
    page.click(f"{box} button[data-opens]")
    page.wait("document.querySelectorAll('#timeline-events tbody tr').length > 5")
    page.wait_text("#timeline-events td", "first token")
    page.wait("document.querySelectorAll('#timeline-picture rect.prefill').length > 0")
    assert "ended with 200" in page.text("#timeline-summary")
    page.click("#timeline button")
    page.wait("!document.querySelector('#timeline').open")


def test_what_others_say_is_text(page):
    answer = "<script>owned=1</script>" + MARKUP
    id = f"id-{MARKUP.replace(' ', '/')}"
    box = ask(page, MARKUP, regex=answer.replace("(", "\\(").replace(")", "\\)"), rid=id)
    assert page.text(f"{box} .answer") == answer
    assert page.text("#transcript .user:nth-last-child(2) pre") == MARKUP
    page.wait_text("#slow button", id)
    page.wait_text("#workers td", MARKUP)
    page.evaluate(f"[...document.querySelectorAll('#slow button')].find(b => b.textContent == {json.dumps(id)}).click()")
    page.wait_text("#timeline-events td", "first token")
    assert page.text("#timeline-title") == id
    page.click("#timeline button")
    box = ask(page, "hi", max_tokens=-1)
    assert page.evaluate(f"document.querySelector('{box}').dataset.end") == "error"
    assert "max_tokens" in page.text(f"{box} .bad")
    page.complaints = [c for c in page.complaints if "400" not in c]  # the console's own line for that status


def test_figures_against_brute_force(page):
    def figure(call):
        return page.evaluate(f"import('/dashboard/figures.js').then((figures) => figures.{call})")

    bounds = [0.5 * 2**i for i in range(8)]
    draw = random.Random(5)

    def counts(samples):
        return [sum(sample <= bound for sample in samples) for bound in [*bounds, math.inf]]

    for _ in range(20):
        before = [draw.expovariate(0.1) for _ in range(draw.randrange(50))]
        lately = [draw.expovariate(0.1) for _ in range(draw.randrange(1, 200))]
        for q in (0.5, 0.9, 0.99):
            sample = sorted(lately)[math.ceil(q * len(lately)) - 1]
            expected = next((bound for bound in bounds if sample <= bound), None)  # JSON has no infinity
            assert figure(f"quantile({bounds}, {counts(before)}, {counts(before + lately)}, {q})") == expected
    assert figure("quantile([1], [3, 4], [3, 4], 0.5)") is None, "nothing has come"
    assert figure("rate(100, 350, 5000)") == 50
    assert figure("rate(100, 5, 5000)") is None, "a worker that has started anew"
    told = ({"hit": 10, "miss": 30}, {"hit": 40, "miss": 40})
    assert figure(f"share({json.dumps(told[0])}, {json.dumps(told[1])}, 'hit', 'miss')") == 30 / 40
    assert figure(f"share({json.dumps(told[1])}, {json.dumps(told[1])}, 'hit', 'miss')") == 40 / 80, "since the start"
    windows = ({"spec_windows": 10, "spec_accepted_tokens": 20}, {"spec_windows": 14, "spec_accepted_tokens": 31})
    assert figure(f"acceptLength({json.dumps(windows[0])}, {json.dumps(windows[1])})") == 1 + 11 / 4


def test_only_what_belongs_together_is_compared(page):
    """Of samples (instance, prompt tokens, at): when the oldest of ten seconds and of a minute was."""

    def oldest(*samples):
        states = [
            {
                "instance": instance,
                "workers": [],
                "counters": {"prompt_tokens": tokens},
                "time_to_first_token": {"counts": [tokens]},
                "inter_token_latency": {"counts": [tokens]},
            }
            for instance, tokens, _ in samples
        ]
        told = json.dumps([[state, at] for state, (_, _, at) in zip(states, samples)])
        return page.evaluate(
            f"""import('/dashboard/figures.js').then(({{ History }}) => {{
                  const history = new History();
                  for (const [state, at] of {told}) history.add(state, at);
                  return [history.recent()[0].at, history.minute()[0].at];
                }})"""
        )

    assert oldest(("a", 0, 5)) == [5, 5]
    assert oldest(*[("a", i, 1000 * i) for i in range(200)]) == [187_000, 137_000]
    assert oldest(("a", 0, 0), ("a", 1, 1000), ("a", 9, 3_600_000)) == [3_600_000, 3_600_000], "nobody looked"
    assert oldest(("a", 7, 0), ("a", 3, 1000), ("a", 4, 2000)) == [1000, 1000], "it has started anew"
    assert oldest(("a", 7, 0), ("b", 8, 1000)) == [1000, 1000], "another router"


def test_what_only_a_minute_shows(page):
    """Each trend by the counters that cause it, none by those beside them."""
    bounds = [5, 10, 20]

    def trends(ttft=(0, 0, 0, 0), statuses=None, lost=0, ejected=0):
        def sample(ttft, statuses, lost, ejected):
            counters = {"requests_by_status": statuses, "workers_lost": lost, "ejections": ejected}
            return json.dumps({"ttft": ttft, "counters": counters})

        first = sample([1, 2, 3, 4], {"200": 7, "429": 3}, 2, 1)
        statuses = {"200": 7, "429": 3} | (statuses or {})
        last = sample([1 + ttft[0], 2 + ttft[1], 3 + ttft[2], 4 + ttft[3]], statuses, 2 + lost, 1 + ejected)
        found = page.evaluate(f"import('/dashboard/trends.js').then((t) => t.trendsOf({first}, {last}, {bounds}))")
        assert all(trend["severity"] == "warning" for trend in found)
        return [trend["what"] for trend in found]

    assert trends() == []
    assert trends(ttft=(0, 100, 100, 100)) == [], "at ten seconds"
    assert trends(ttft=(0, 98, 100, 100)) == ["one answer in a hundred begins after more than 10.0 s"]
    assert trends(ttft=(0, 0, 0, 5)) == ["one answer in a hundred begins after more than 10.0 s"], "beyond every bucket"
    assert trends(statuses={"429": 7}) == [], "four are no trend"
    assert trends(statuses={"200": 102, "429": 8}) == [], "5 of 100"
    assert trends(statuses={"200": 101, "429": 8}) == ["5 of 99 requests found no place within a minute: they got 429"]
    assert trends(lost=1, ejected=2) == [
        "a worker was lost once within a minute; its requests went on elsewhere or failed",
        "a worker was ejected 2 times within a minute",
    ]


def test_five_hundred_workers_are_shown_and_kept_up_with(browser, trained):
    page = browser.open(trained.url + "/dashboard", before=A_LARGE_CLUSTER)
    page.wait("document.querySelectorAll('#workers tbody tr').length == 500")
    assert page.text("#pools-note") == "249 of 250 prefill up, 250 of 250 decode up, 100 more not shown"
    row = "document.querySelectorAll('#workers tbody tr')[499]"
    page.evaluate(f"window.last = {row}; window.shown = document.querySelector('#updated').textContent")
    page.wait("document.querySelector('#updated').textContent != window.shown")
    assert page.evaluate(f"{row} === window.last"), "a row stays where it is: it may be selected"
    assert page.complaints == []
    page.close()


def test_nobody_looks_nobody_asks(page):
    page.evaluate(IS_HIDDEN.format("true"))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait("document.body.dataset.polling == 'hidden'")
    assert page.evaluate("pendingTimers.size") == 0
    asked = len(page.asked)
    page.evaluate(IS_HIDDEN.format("false"))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait("document.body.dataset.polling == 'on'")
    wait_until(lambda: page.evaluate("1") and len(page.asked) > asked, lambda: page.asked)


def test_a_killed_worker_and_a_killed_router(browser, fresh_cluster):
    with fresh_cluster(num_decode=2, router=clusters.WATCHFUL_ROUTER) as cluster:
        cluster.is_expected_to_log_errors = True
        page = browser.open(cluster.url + "/dashboard")
        page.wait_text("#pools-note", "2 of 2 decode up")
        stream = HeldStream(cluster).begin()
        page.wait("document.querySelectorAll('#streams button').length == 1")
        cluster.decodes[1].kill()
        page.wait_text("#troubles li.warning", "1 of 2 decode workers is down: decode-1 at ")
        page.wait_text("#workers tr:first-child td.bad", "down: ")
        page.wait_text("#troubles li.warning", "a worker was lost once within a minute")
        assert page.text("#pools-note") == "1 of 1 prefill up, 1 of 2 decode up"
        assert page.text("#troubles code") == "tandem_router_workers_up"
        page.click("#troubles button[data-opens=a-worker-is-suspected]")
        page.wait_text("#runbook-title", "A worker is suspected")
        page.wait_text("#runbook-text code", '"worker is down"')
        assert "`" not in page.text("#runbook-text") and "*" not in page.text("#runbook-text")
        cluster.decodes[0].kill()
        page.wait_text("#troubles li.page", "this router cannot serve, every request gets 503")
        assert page.evaluate("document.querySelector('#troubles li').className") == "page", "what clients notice is first"
        assert page.text("#readiness") == "not ready" and page.evaluate("document.title") == "! Tandem"
        stream.close()
        cluster.router.kill()
        page.wait_text("#troubles li.page", "this router does not answer")


def test_a_key_is_asked_for_and_kept_nowhere(browser, fresh_cluster, tmp_path):
    (tmp_path / "keys").write_text("the-clients-key\n")
    (tmp_path / "admin").write_text("the-admin-key\n")
    auth = {"api_keys_file": str(tmp_path / "keys"), "admin_keys_file": str(tmp_path / "admin")}
    with fresh_cluster(router={"auth": auth}, start_order=("router",), is_to_be_ready=False) as cluster:
        assert get(cluster.url + "/debug/state")[0] == 401 and get(cluster.url + "/dashboard")[0] == 200
        page = browser.open(cluster.url + "/dashboard")
        page.wait("document.body.dataset.polling == 'key'")
        assert page.evaluate("document.querySelector('#key-form').hidden") is False
        for key, state in (("the-clients-key", "key"), ("the-admin-key", "on")):
            page.fill("#key", key)
            page.click("#key-form button")
            page.wait(f"document.body.dataset.polling == '{state}' && !document.querySelector('#key').value")
            if state == "key":
                page.wait("document.querySelector('#key-error').textContent !== ''")
        page.wait_text("#troubles li.page", "cannot serve")
        kept = "[localStorage.length, sessionStorage.length, document.cookie, location.href].join()"
        assert page.evaluate(kept) == f"0,0,,{cluster.url}/dashboard"
        assert "the-admin-key" not in page.evaluate("document.documentElement.outerHTML")
        page.click("#forget-key")
        page.wait("document.body.dataset.polling == 'key'")
