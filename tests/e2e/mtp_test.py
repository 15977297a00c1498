"""Drafts change no byte of an answer, and most of them come true: tandem-tiny with its MTP layer on, beside itself without.

The questions draw, choose, penalise, constrain and stop in every way that a request can, so that windows of drafts end
at every kind of border.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e import cluster as clusters
from tests.e2e import failover_test
from tests.e2e.asking import chat
from tests.e2e.failover_test import MAX_TOKENS, added_up, failovers, where_it_runs
from tests.e2e.held_stream import HeldStream

CHECKPOINT = clusters.ROOT / "checkpoints" / "tandem-tiny"
PERCENT = [{"role": "user", "content": "Solve this problem step by step: What is 37% of 2496?"}]
FILLER = "The road went from the tower to the old bridge. Nobody knew why the lamp was so quiet. "
RETRIEVAL = [{"role": "user", "content": FILLER * 12 + "The access code of the silver lamp is 48213. " + FILLER * 9
              + "\n\nWhat is the access code of the silver lamp?"}]
PERSON = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"], "additionalProperties": False}}}
SAMPLED = {"temperature": 1.0, "seed": 7}
LOGPROBS = {"logprobs": True, "top_logprobs": 4}
STOPS = {"extra": {"ignore_eos": False}}
QUESTIONS = {
    "greedy": {"messages": PERCENT, "max_tokens": 200, **STOPS},
    "greedy, to the last token": {"messages": PERCENT, "max_tokens": 37, **LOGPROBS},
    "thinking": {"messages": PERCENT, "max_tokens": 150, "thinking": True, **STOPS},
    "long": {"messages": RETRIEVAL, "max_tokens": 60, **LOGPROBS, **STOPS},
    "sampled": {"messages": PERCENT, "max_tokens": 200, **SAMPLED, **LOGPROBS, **STOPS},
    "wild": {"messages": PERCENT, "max_tokens": 120, "temperature": 2.0, "seed": 3, **LOGPROBS},
    "three choices": {"messages": PERCENT, "max_tokens": 120, "n": 3, "temperature": 1.3, "seed": 5, **LOGPROBS, **STOPS},
    "penalties": {"messages": PERCENT, "max_tokens": 120, "temperature": 0.8, "seed": 9, "frequency_penalty": 0.7,
                  "presence_penalty": 0.3, "logit_bias": {"40": 2, "41": -100}, **LOGPROBS,
                  "extra": {"repetition_penalty": 1.1}},
    "filters": {"messages": PERCENT, "max_tokens": 120, "temperature": 1.2, "seed": 4, "top_p": 0.9,
                "extra": {"min_p": 0.05, "top_k": 20, "min_tokens": 60, "ignore_eos": False}},
    "constrained": {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 100, "temperature": 1.0,
                    "seed": 6, "response_format": PERSON, **LOGPROBS, **STOPS},
    "stop string": {"messages": PERCENT, "max_tokens": 200, "stop": ["of 2496"], **STOPS},
    "one token": {"messages": PERCENT, "max_tokens": 1, **STOPS},
    "two tokens": {"messages": PERCENT, "max_tokens": 2, **STOPS},
}


def ask(cluster, name):
    status, _, body = cluster.post(chat(**QUESTIONS[name]))
    assert status == 200, body
    answer = json.loads(body)
    return answer["choices"], answer["usage"]["completion_tokens"]


def accept_length(cluster):
    return json.loads(clusters.get(cluster.url + "/server_info")[1])["internal_states"][0]["avg_spec_accept_length"]


def sampling_of(fields):
    """The same in the words of /generate."""
    return {"temperature": fields["temperature"]} | ({"sampling_seed": fields["seed"]} if "seed" in fields else {})


def cluster_with(tmp_path_factory, name, **options):
    return clusters.Cluster(tmp_path_factory.mktemp(name) / "cluster", CHECKPOINT, clusters.Options(**options))


@pytest.fixture(scope="module")
def plain_answers(tmp_path_factory):
    with cluster_with(tmp_path_factory, "plain", num_drafts=0) as cluster:
        answers = {name: ask(cluster, name) for name in QUESTIONS}
        cluster.wait_at_rest()
        assert cluster.decode.metric("tandem_spec_windows_total") == 0
        assert accept_length(cluster) is None
    return answers


@pytest.mark.parametrize("num_drafts, is_adaptive, chunk", [(1, False, 512), (3, False, 100), (3, True, 512), (7, False, 64)])
def test_drafts_change_no_byte(tmp_path_factory, plain_answers, num_drafts, is_adaptive, chunk):
    with cluster_with(tmp_path_factory, "drafts", num_drafts=num_drafts, chunked_prefill_size=chunk,
                      decode={"speculative_adaptive": is_adaptive}) as cluster:
        assert {name: ask(cluster, name) for name in QUESTIONS} == plain_answers
        with ThreadPoolExecutor(len(QUESTIONS)) as pool:
            assert dict(zip(QUESTIONS, pool.map(lambda name: ask(cluster, name), QUESTIONS))) == plain_answers
        cluster.wait_at_rest()
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0
        assert cluster.decode.metric("tandem_spec_accepted_tokens_total") > 0


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 20}])
def test_most_drafts_come_true(tmp_path_factory, sampling):
    """Teacher forced, all three drafts hit in 94 % of the places and a step brings 3.94 tokens; here ends count, too."""
    questions = [f"Solve this problem step by step: What is {percent}% of {number}?"
                 for percent, number in [(15, 240), (37, 2496), (64, 7385), (8, 950), (72, 1300), (51, 4004)]]
    with cluster_with(tmp_path_factory, "accept", num_drafts=3, decode={"speculative_adaptive": False}) as cluster:
        for question in questions:
            body = chat(messages=[{"role": "user", "content": question}], max_tokens=400, extra={"ignore_eos": False}, **sampling)
            assert cluster.post(body)[0] == 200
        cluster.wait_at_rest()  # from then on its figures stand still
        windows = cluster.decode.metric("tandem_spec_windows_total")
        accepted = cluster.decode.metric("tandem_spec_accepted_tokens_total")
        length = 1 + accepted / windows
        print(f"\naccept length {length:.2f} at {sampling}")
        assert length >= (3.6 if sampling["temperature"] == 0 else 3.0)
        assert cluster.decode.metric("tandem_spec_accept_length") == pytest.approx(length)
        assert cluster.decode.metric("tandem_spec_window_tokens_count") == windows
        assert cluster.decode.metric("tandem_spec_window_tokens_sum") == windows + accepted
        assert cluster.decode.metric("tandem_spec_answer_accept_length_count") == len(questions)
        assert cluster.decode.metric("tandem_spec_answer_accept_length_sum") >= 3 * len(questions)
        page = clusters.get(cluster.decode.admin + "/statusz")[1]
        assert f"mtp: 3 drafts a window now, 3 at most, always as many; {windows:.0f} windows brought {length:.2f} tokens each" in page
        # The router is told with the next load.
        told = clusters.wait_until(lambda: accept_length(cluster) or 0, lambda: clusters.get(cluster.url + "/server_info")[1])
        assert 1 <= told <= 4
        status, _, body = cluster.post({"text": questions[0], "sampling_params": {"max_new_tokens": 60, "ignore_eos": True, **sampling_of(sampling)}},
                                       "/generate")
        meta = json.loads(body)["meta_info"]
        assert meta["spec_accept_length"] == pytest.approx(1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"])
        assert meta["completion_tokens"] == 1 + meta["spec_verify_ct"] + meta["spec_num_correct_drafts"]


@pytest.mark.parametrize("host_tokens, grows", [(0, "tandem_replayed_tokens_total"), (4096, "tandem_resumed_from_host_reqs_total")])
def test_retracted_answers_go_on_exactly(tmp_path_factory, host_tokens, grows):
    """Room for the prompts of all, not for their answers."""
    body = chat(messages=PERCENT, max_tokens=150, **SAMPLED)
    with cluster_with(tmp_path_factory, "alone", num_drafts=0) as cluster:
        alone = json.loads(cluster.post(body)[2])["choices"]
    with cluster_with(tmp_path_factory, "famine", num_drafts=3, kv_cache_tokens=512, context_length=512,
                      decode={"retraction_host_tokens": host_tokens}) as cluster:
        for _ in range(20):
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: json.loads(cluster.post(body)[2])["choices"], range(8)))
            assert answers == [alone] * 8
            if cluster.decode.metric(grows) > 0:
                break
        else:
            raise AssertionError(f"{grows} is 0 after 20 rounds")
        assert cluster.decode.metric("tandem_replay_mismatches_total") == 0
        cluster.wait_at_rest()


@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_that_drafts_outlives_its_decode_worker(fresh_cluster, n):
    fields = {"max_tokens": MAX_TOKENS, "n": n, "stream_options": {"include_usage": True}, **failover_test.SAMPLED}
    with fresh_cluster(num_drafts=0) as cluster:
        expected, _ = added_up(HeldStream(cluster, **fields).begin().rest())
    with fresh_cluster(num_decode=2, num_drafts=3, router=clusters.WATCHFUL_ROUTER) as cluster:
        cluster.is_expected_to_log_errors = True
        stream = HeldStream(cluster, **fields).begin()
        cluster.decodes[where_it_runs(cluster.decodes)].kill()
        assert added_up(stream.rest())[0] == expected
        assert failovers(cluster, had_tokens="yes") == 1
        cluster.wait_at_rest()


def test_pairs_of_which_one_drafts_refuse_each_other(fresh_cluster):
    with fresh_cluster(num_drafts=0, num_spare=1, router={"worker_changes": True}) as cluster:
        cluster.start_decode(1, speculative={"num_steps": 3})
        drafting = cluster.decodes[1]
        # Nobody but the router says whom it is to greet: the refusal shows where decode greets prefill.
        status, _, answer = cluster.post({"url": cluster.addresses("decode", [1])[0], "worker_type": "decode"}, "/workers")
        assert status == 202, answer
        seen = lambda: clusters.get(drafting.admin + "/statusz")[1]
        clusters.wait_until(lambda: "has_mtp" in seen(), seen)


@pytest.mark.parametrize("role", ["prefill_worker", "decode_worker"])
@pytest.mark.parametrize("settings, told", [
    ({"num_steps": 2, "num_draft_tokens": 4}, "cluster.speculative.num_draft_tokens is 4, must be num_steps + 1 = 3"),
    ({"num_draft_tokens": 4}, "cluster.speculative.num_draft_tokens is 4, must be 0 where num_steps is 0"),
    ({"num_steps": 2, "topk": 2}, "cluster.speculative.topk"),
    ({"num_steps": 16}, "cluster.speculative.num_steps"),
])
def test_what_does_not_fit_stops_the_start(role, settings, told):
    sets = [f"--set=cluster.speculative.{name}={value}" for name, value in settings.items()]
    ended = subprocess.run(
        [clusters.binary(f"{role}/{role}"), f"--set=cluster.model_path={CHECKPOINT}", *sets, "--validate_only"],
        capture_output=True, text=True, timeout=clusters.START_SECONDS)
    assert ended.returncode != 0
    assert told in ended.stderr + ended.stdout
