"""Answers that are held to a form, through the whole cluster, with the official client.

The weights are random and the temperature is high: nothing but the constraint makes these answers what they are. Values
are judged by jsonschema, which knows nothing of us.
"""

import json
import subprocess

import jsonschema
import openai
import pytest

from tests.e2e import cluster as clusters

QUESTION = [{"role": "user", "content": "What is the weather?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 1, "maxLength": 12},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 14},
                "at": {
                    "type": "array", "minItems": 1, "maxItems": 3,
                    "items": {
                        "type": "object",
                        "properties": {"x": {"type": "integer", "minimum": -90, "maximum": 90}, "exact": {"type": "boolean"}},
                        "required": ["x"], "additionalProperties": False,
                    },
                },
            },
            "required": ["city", "at"], "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]
PARAMETERS = {"get_weather": WEATHER["function"]["parameters"], "now": {"type": "object", "maxProperties": 0}}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "born": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"enum": ["a", "b", 3, None]}, "maxItems": 4},
        "score": {"type": "number", "minimum": 0, "maximum": 10},
        "child": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]},
        "note": {"type": "string", "maxLength": 10},
    },
    "required": ["name", "born", "tags", "child"],
    "additionalProperties": False,
    "$defs": {
        "leaf": {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": "i"}, "v": {"type": "integer", "maximum": 99, "minimum": 0}},
                 "required": ["kind", "v"], "additionalProperties": False},
                {"type": "object", "properties": {"kind": {"const": "b"}, "v": {"type": "boolean"}},
                 "required": ["kind", "v"], "additionalProperties": False},
            ]
        }
    },
}
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)


def is_front_of_json(text):
    """Whether something may follow that makes it JSON: what is open is closed, with a value where one is missing."""
    closers, in_string, i = [], False, 0
    while i < len(text):
        c = text[i]
        if in_string:
            if c == "\\":
                i += 1
            in_string = c != '"'
        elif c == '"':
            in_string = True
        elif c in "{[":
            closers.append("}" if c == "{" else "]")
        elif c in "}]":
            if not closers or closers.pop() != c:
                return False
        i += 1
    return bool(closers)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, micro):
    preamble = tmp_path_factory.mktemp("texts") / "tools.txt"
    preamble.write_text("You may call these functions: {tools}")
    options = clusters.Options(router={"chat": {"tools_preamble": str(preamble)}})
    with clusters.Cluster(tmp_path_factory.mktemp("structured") / "cluster", micro, options) as cluster:
        yield cluster
        cluster.wait_at_rest()


@pytest.fixture(scope="module")
def client(cluster):
    with cluster.openai() as client:
        yield client


def ask(client, **fields):
    body = {"model": clusters.MODEL, "messages": QUESTION, "temperature": 1.5, "top_p": 1, "max_tokens": 2000}
    return client.chat.completions.create(**(body | fields))


def json_schema(schema, strict=True):
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": strict}}


def check_calls(calls):
    for call in calls:
        arguments = json.loads(call.function.arguments)
        jsonschema.validate(arguments, PARAMETERS[call.function.name])


@pytest.mark.parametrize("strict", [True, False])
def test_answers_follow_their_schema(client, strict):
    answers = set()
    for seed in range(5):
        completion = ask(client, response_format=json_schema(SCHEMA, strict), seed=seed, n=4)
        for choice in completion.choices:
            assert choice.finish_reason == "stop", choice
            VALIDATOR.validate(json.loads(choice.message.content))
            answers.add(choice.message.content)
    assert len(answers) == 20, "every choice is drawn by itself"


def test_a_stream_gives_what_the_whole_gives(client):
    fields = {"response_format": json_schema(SCHEMA), "seed": 3}
    whole = ask(client, **fields).choices[0]
    pieces, reasons = [], []
    for chunk in ask(client, stream=True, **fields):
        pieces += [choice.delta.content or "" for choice in chunk.choices]
        reasons += [choice.finish_reason for choice in chunk.choices if choice.finish_reason]
    assert "".join(pieces) == whole.message.content
    assert reasons == [whole.finish_reason] == ["stop"]


def test_any_object_is_json_or_was_cut(client):
    for seed in range(6):
        (choice,) = ask(client, response_format={"type": "json_object"}, seed=seed, max_tokens=300).choices
        text = choice.message.content
        assert text.startswith("{")
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            assert choice.finish_reason == "length" and is_front_of_json(text), text


@pytest.mark.parametrize("parallel", [True, False])
def test_a_required_call_is_made_and_follows_its_schema(client, parallel):
    names = set()
    for seed in range(5):
        completion = ask(client, tools=TOOLS, tool_choice="required", parallel_tool_calls=parallel, seed=seed, n=4)
        for choice in completion.choices:
            assert choice.finish_reason == "tool_calls", choice
            assert choice.message.content is None
            calls = choice.message.tool_calls
            assert len(calls) == 1 or parallel
            check_calls(calls)
            names |= {call.function.name for call in calls}
    assert names == {"get_weather", "now"}


def test_a_named_function_is_the_one_that_is_called(client):
    choice_of = {"type": "function", "function": {"name": "get_weather"}}
    for seed in range(5):
        (choice,) = ask(client, tools=TOOLS, tool_choice=choice_of, seed=seed).choices
        assert choice.finish_reason == "tool_calls"
        assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
        check_calls(choice.message.tool_calls)


def test_calls_in_a_stream_are_those_of_the_whole(client):
    fields = {"tools": TOOLS, "tool_choice": "required", "seed": 11}
    whole = ask(client, **fields).choices[0]
    calls, reasons = {}, []
    for chunk in ask(client, stream=True, **fields):
        for choice in chunk.choices:
            assert not choice.delta.content
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert [calls[i] for i in sorted(calls)] == [
        (call.function.name, call.function.arguments) for call in whole.message.tool_calls]
    assert reasons == ["tool_calls"]


def test_the_model_thinks_first_and_the_form_begins_behind_it(cluster, client, micro):
    tokenizer = json.loads((micro / "tokenizer.json").read_text())
    (think_end,) = [token["id"] for token in tokenizer["added_tokens"] if token["content"] == "</think>"]
    extra = {"chat_template_kwargs": {"thinking": True}}
    for fields, reason in [({"response_format": json_schema(SCHEMA)}, "stop"),
                           ({"tools": TOOLS, "tool_choice": "required"}, "tool_calls")]:
        for seed in range(3):
            # Random weights would think for thousands of tokens.
            (choice,) = ask(client, seed=seed, logit_bias={str(think_end): 9}, extra_body=extra, **fields).choices
            assert choice.finish_reason == reason, choice
            if reason == "stop":
                VALIDATOR.validate(json.loads(choice.message.content))
            else:
                check_calls(choice.message.tool_calls)


def test_log_probabilities_stay_the_models_own(client):
    (choice,) = ask(client, response_format=json_schema({"enum": ["x"]}), logprobs=True, top_logprobs=3).choices
    assert choice.message.content == '"x"'
    # A token that had to come was not certain for that.
    assert all(entry.logprob < -0.01 for entry in choice.logprobs.content)


def test_a_ban_that_leaves_nothing_is_said_in_band(cluster, client, micro):
    vocab = json.loads((micro / "tokenizer.json").read_text())["model"]["vocab"]
    bans = {str(token): -100 for text, token in vocab.items() if text.startswith("n")}
    with pytest.raises(openai.BadRequestError, match="leave none"):
        ask(client, response_format=json_schema({"type": "null"}), logit_bias=bans)
    assert ask(client, response_format=json_schema({"type": "null"})).choices[0].message.content == "null"


@pytest.mark.parametrize("fields, param, part", [
    ({"response_format": json_schema({"type": "array", "uniqueItems": True})},
     "response_format.json_schema.schema", "uniqueItems is not supported (at /uniqueItems)"),
    ({"response_format": json_schema({"type": "object", "properties": {"a": {"pattern": "(?=x)"}}})},
     "response_format.json_schema.schema", "look-ahead is not supported at character 0"),
    ({"response_format": json_schema({"type": "string", "maxLength": 9000})},
     "response_format.json_schema.schema", "maxLength is supported up to 8192"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}},
     "tool_choice.function.name", "none of the request's tools"),
    ({"tool_choice": "required"}, "tool_choice", "has no tools"),
    ({"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"not": {}}}}}}]},
     "tools[0].function.parameters", "not is not supported (at /properties/a/not)"),
    ({"response_format": {"type": "json_object"}, "extra_body": {"ignore_eos": True}}, "ignore_eos", "must be false"),
])
def test_what_cannot_be_enforced_is_refused_by_name(client, fields, param, part):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, **fields)
    assert error.value.param == param
    assert part in error.value.message


def test_random_schemas_are_followed_as_another_validator_reads_them():
    printed = subprocess.run(
        [clusters.binary("tests/constraints/write_answers"), "--schemas", "150", "--answers", "5"],
        check=True, capture_output=True, text=True, encoding="utf-8")
    lines = [json.loads(line) for line in printed.stdout.split("\n") if line]
    assert len(lines) > 500
    for line in lines:
        validator = jsonschema.Draft202012Validator(line["schema"], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        validator.validate(json.loads(line["answer"]))
