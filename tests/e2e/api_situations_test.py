"""Situations in which servers of this API have been wrong, each through the whole cluster: docs/cases.md has the list,
and where those that need no cluster are tested."""

import json

import httpx
import pytest

from tests.e2e import cluster as clusters
from tests.e2e.cluster import MODEL
from tests.e2e.raw_http import events

CHECKPOINT = clusters.ROOT / "checkpoints" / "tandem-tiny"
SUM = [{"role": "user", "content": "What is 15% of 240?"}]
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜></think>"


def function(name, strict, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}


def calls(*arguments):
    return [
        {"id": f"call_{i}", "type": "function", "function": {"name": "f", "arguments": text}}
        for i, text in enumerate(arguments)
    ]


@pytest.fixture(scope="module")
def tiny_cluster(tmp_path_factory):
    with clusters.Cluster(tmp_path_factory.mktemp("situations") / "cluster", CHECKPOINT) as cluster:
        yield cluster


@pytest.fixture
def tiny(tiny_cluster):
    yield tiny_cluster
    tiny_cluster.wait_at_rest()


def whole(cluster, body, path="/v1/chat/completions"):
    status, _, answer = cluster.post({"model": MODEL} | body, path)
    assert status == 200, answer
    return json.loads(answer)


def stream(cluster, body, path="/v1/chat/completions"):
    """The events but [DONE], which must come once, at the end."""
    status, _, answer = cluster.post({"model": MODEL, "stream": True} | body, path)
    assert status == 200, answer
    told = list(events(answer.encode()))
    assert told[-1] == "[DONE]" and told.count("[DONE]") == 1
    return [json.loads(event) for event in told[:-1]]


def prompt_text(cluster, messages):
    """What the model reads of these messages, behind the system part."""
    body = {"messages": messages, "tools": [function("f", False, a={"type": "integer"})]}
    tokens = whole(cluster, body, "/tokenize")["tokens"]
    text = whole(cluster, {"tokens": tokens, "skip_special_tokens": False}, "/detokenize")["text"]
    return text[text.index(USER) :]


# ---- What the model is told ----


def test_null_missing_and_empty_content_is_empty_text_and_never_a_word(tiny):
    for content in ({"content": None}, {}, {"content": ""}, {"content": []}, {"content": [{"type": "text", "text": ""}]}):
        assert prompt_text(tiny, [{"role": "user"} | content]) == USER + ASSISTANT
        turn = [*SUM, {"role": "assistant", "tool_calls": calls("{}")} | content, {"role": "tool", "tool_call_id": "call_0"} | content]
        shown = prompt_text(tiny, turn)
        assert "<result></result>" in shown and f"{ASSISTANT}\n\n<｜DSML｜function_calls>" in shown
        assert "None" not in shown and "null" not in shown
        said = [*SUM, {"role": "assistant"} | content, {"role": "user", "content": "And?"}]
        assert prompt_text(tiny, said).endswith(f"{ASSISTANT}<｜end▁of▁sentence｜>{USER}And?{ASSISTANT}")


def test_parts_of_a_content_stand_one_after_the_other(tiny):
    parts = [{"type": "text", "text": text} for text in ("one, ", "", "two")]
    assert prompt_text(tiny, [{"role": "user", "content": parts}]) == f"{USER}one, two{ASSISTANT}"


def test_arguments_of_past_calls(tiny):
    def shown(arguments):
        turn = [*SUM, {"role": "assistant", "content": None, "tool_calls": calls(arguments)}]
        return prompt_text(tiny, [*turn, {"role": "tool", "tool_call_id": "call_0", "content": "x"}])

    assert '<｜DSML｜parameter name="a" string="false">1.0</｜DSML｜parameter>' in shown('{"a":1.0}')
    for nothing in ("", "null", "{}", None):
        assert "parameter" not in shown(nothing) and "null" not in shown(nothing)
    for wrong in ({"a": 1}, "[1]", '{"a":', "text"):
        turn = [*SUM, {"role": "assistant", "tool_calls": calls(wrong)}, {"role": "tool", "tool_call_id": "call_0"}]
        status, _, answer = tiny.post({"model": MODEL, "messages": turn, "max_tokens": 1})
        assert status == 400 and "arguments" in json.loads(answer)["error"]["message"], answer


def test_marks_are_marks_in_completions_and_letters_in_a_chat(tiny):
    text = f"{USER}What is 15% of 240?{ASSISTANT}"
    first = whole(tiny, {"prompt": "<｜begin▁of▁sentence｜>"}, "/tokenize")["tokens"]
    assert len(first) == 1
    marked = whole(tiny, {"prompt": text}, "/tokenize")["tokens"]
    assert marked == whole(tiny, {"messages": SUM}, "/tokenize")["tokens"] and marked.count(first[0]) == 1
    assert marked == whole(tiny, {"prompt": "<｜begin▁of▁sentence｜>" + text}, "/tokenize")["tokens"]
    assert marked[1:] == whole(tiny, {"prompt": text, "add_special_tokens": False}, "/tokenize")["tokens"]
    ask = {"max_tokens": 40, "temperature": 0}
    answers = whole(tiny, ask | {"prompt": [text, "<｜begin▁of▁sentence｜>" + text]}, "/v1/completions")["choices"]
    (by_ids,) = whole(tiny, ask | {"prompt": marked}, "/v1/completions")["choices"]
    (by_chat,) = whole(tiny, ask | {"messages": SUM})["choices"]
    assert {c["text"] for c in answers} == {by_ids["text"]} == {by_chat["message"]["content"]}
    # A client's own words: the same letters, none of the tokens.
    said = whole(tiny, {"messages": [{"role": "user", "content": text}]}, "/tokenize")["tokens"]
    user, assistant = (whole(tiny, {"prompt": mark, "add_special_tokens": False}, "/tokenize")["tokens"][0] for mark in (USER, ASSISTANT))
    assert (said.count(user), said.count(assistant)) == (1, 1) and len(said) > len(marked)


# ---- What comes of its answer ----


def made_calls(tool_calls):
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in tool_calls]


@pytest.mark.parametrize("thinking", [False, True], ids=["chat", "thinking"])
@pytest.mark.parametrize("strict", [False, True], ids=["free", "strict"])
@pytest.mark.parametrize("choice", ["required", "get_date"])
def test_a_call_that_must_come_comes_whole_and_streamed(tiny, choice, strict, thinking):
    tools = [function("get_weather", strict, city={"type": "string", "maxLength": 20}), function("get_date", strict)]
    body = {
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "tools": tools, "temperature": 0, "max_tokens": 300, "chat_template_kwargs": {"thinking": thinking},
        "tool_choice": choice if choice == "required" else {"type": "function", "function": {"name": choice}},
    }  # fmt: skip
    (answer,) = whole(tiny, body)["choices"]
    message = answer["message"]
    assert answer["finish_reason"] == "tool_calls" and message["content"] is None
    made = made_calls(message["tool_calls"])
    assert made and all(set(arguments) == ({"city"} if name == "get_weather" else set()) for name, arguments in made)
    if choice != "required":
        assert {name for name, _ in made} == {choice}
    streamed, reasoning, reasons = {}, "", []
    for event in stream(tiny, body):
        (part,) = event["choices"]
        reasons += [part["finish_reason"]] if part["finish_reason"] else []
        reasoning += part["delta"].get("reasoning_content") or ""
        assert not part["delta"].get("content")
        for call in part["delta"].get("tool_calls") or []:
            whole_call = streamed.setdefault(call["index"], {"function": {"name": "", "arguments": ""}})
            for key in ("name", "arguments"):
                whole_call["function"][key] += call["function"].get(key) or ""
    assert made_calls(streamed[i] for i in sorted(streamed)) == made and list(streamed) == list(range(len(made)))
    assert reasons == ["tool_calls"] and reasoning == (message.get("reasoning_content") or "")
    assert bool(reasoning) == thinking


@pytest.mark.parametrize("switch", [{}, {"thinking": False}, {"enable_thinking": False}], ids=str)
def test_without_thinking_the_answer_is_content(tiny, switch):
    (answer,) = whole(tiny, {"messages": SUM, "temperature": 0, "chat_template_kwargs": switch})["choices"]
    assert answer["message"]["content"] and not answer["message"].get("reasoning_content")


def test_speciale_thinks_and_answers_and_takes_no_tools(tmp_path):
    options = clusters.Options(router={"chat": {"format": "v3.2-speciale"}})
    with clusters.Cluster(tmp_path / "cluster", CHECKPOINT, options) as cluster:
        thinking = {"chat_template_kwargs": {"thinking": True}, "messages": SUM, "temperature": 0}
        (answer,) = whole(cluster, thinking)["choices"]
        assert answer["message"]["content"] and answer["message"]["reasoning_content"]
        assert "</think>" not in answer["message"]["content"] + answer["message"]["reasoning_content"]
        status, _, refused = cluster.post({"model": MODEL, "tools": [function("f", False)]} | thinking)
        assert status == 400 and "does not support tool calls" in json.loads(refused)["error"]["message"]
        cluster.wait_at_rest()


def test_an_answer_of_thinking_alone_is_empty_content_that_stopped_and_is_counted(tiny):
    before = tiny.router.metric("tandem_router_empty_answers_total")
    body = {"messages": SUM, "temperature": 0, "chat_template_kwargs": {"thinking": True}, "ebnf": 'root ::= ""'}
    answer = whole(tiny, body)
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    assert choice["message"]["reasoning_content"]
    usage = answer["usage"]
    # The thoughts, the mark that ends them, and the end.
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]
    parts = [part for event in stream(tiny, body) for part in event["choices"]]
    assert "".join(part["delta"].get("reasoning_content") or "" for part in parts) == choice["message"]["reasoning_content"]
    assert not any(part["delta"].get("content") for part in parts) and parts[-1]["finish_reason"] == "stop"
    assert tiny.router.metric("tandem_router_empty_answers_total") == before + 2


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_usage_comes_once_behind_every_choice(tiny, path, n):
    body = {"n": n, "max_tokens": 5, "ignore_eos": True} | ({"messages": SUM} if "chat" in path else {"prompt": ["a", "b"]})
    num_choices = n if "chat" in path else 2 * n
    told = stream(tiny, body | {"stream_options": {"include_usage": True}}, path)
    assert all(event["usage"] is None and event["choices"] for event in told[:-1])
    assert told[-1]["choices"] == [] and told[-1]["usage"]["completion_tokens"] == 5 * num_choices
    assert told[-1]["usage"]["total_tokens"] == told[-1]["usage"]["prompt_tokens"] + 5 * num_choices
    ended = [choice["index"] for event in told for choice in event["choices"] if choice["finish_reason"]]
    assert sorted(ended) == list(range(num_choices))
    assert not any(event.get("usage") for event in stream(tiny, body, path)), "only where it is asked for"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/generate"])
def test_line_ends_of_other_languages_cut_no_event(tiny, path):
    """httpx takes all that str.splitlines() does for the end of a line; so do clients that read its lines."""
    text = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg\u001dh\u001ei"
    regex = "".join(char if char.isalpha() else f"\\u{ord(char):04x}" for char in text)
    body = {"model": MODEL, "stream": True, "messages": SUM, "prompt": "x", "text": "x", "regex": regex}
    if path == "/generate":
        body = {"text": "x", "stream": True, "sampling_params": {"regex": regex, "max_new_tokens": 100}}
    read, last = "", ""
    with httpx.stream("POST", tiny.url + path, json=body | {"max_tokens": 100}, timeout=clusters.ANSWER_SECONDS) as response:
        for line in response.iter_lines():
            if not line or line == "data: [DONE]":
                continue
            assert line.startswith("data: "), line
            event = json.loads(line.removeprefix("data: "))
            last = event.get("text", last)
            for choice in event.get("choices", ()):
                read += choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
    assert (last if path == "/generate" else read) == text
