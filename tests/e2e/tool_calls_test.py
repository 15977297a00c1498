"""Tool calls with the official OpenAI client, through the whole cluster, by the shipped checkpoint, which was trained to
make them: what is right is said by the request."""

import json

import openai
import pytest

from tests.e2e import cluster as clusters
from tests.e2e.held_stream import WIDE

CHECKPOINT = clusters.ROOT / "checkpoints" / "tandem-tiny"

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City name"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Temperature unit"},
            },
            "required": ["location"],
        },
    },
}
TIMER = {
    "type": "function",
    "function": {
        "name": "set_timer",
        "description": "Set a timer",
        "parameters": {
            "type": "object",
            "properties": {"minutes": {"type": "integer", "description": "Minutes to wait"}},
            "required": ["minutes"],
        },
    },
}
QUESTION = {"role": "user", "content": "What's the weather in Beijing?"}
# Credit of four tokens of a WIDE stream: so many can be ready together and leave in one piece.
FOUR_TOKENS = {"stream_credit_bytes": 64}
SENTENCE = "The weather in Beijing is 22°C and sunny."


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    options = clusters.Options(router=FOUR_TOKENS)
    with clusters.Cluster(tmp_path_factory.mktemp("tools") / "cluster", CHECKPOINT, options) as cluster:
        with cluster.openai() as client:
            yield client
        cluster.wait_at_rest()


def request(messages, thinking=False, tools=(WEATHER, TIMER), **fields):
    body = {
        "model": clusters.MODEL, "messages": messages, "temperature": 0, "max_tokens": 200,
        "extra_body": {"chat_template_kwargs": {"thinking": thinking}},
    }
    return body | ({"tools": list(tools)} if tools else {}) | fields


def ask(client, messages, **fields):
    (choice,) = client.chat.completions.create(**request(messages, **fields)).choices
    return choice


def calls_of(message):
    return [(call.type, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls]


@pytest.mark.parametrize("thinking", [False, True], ids=["chat", "thinking"])
def test_a_round_with_a_tool(client, thinking):
    asked = ask(client, [QUESTION], thinking=thinking)
    assert asked.finish_reason == "tool_calls"
    assert calls_of(asked.message) == [("function", "get_weather", {"location": "Beijing"})]
    assert asked.message.content is None
    (call,) = asked.message.tool_calls
    assert call.id.startswith("call_")

    result = {"role": "tool", "tool_call_id": call.id, "content": SENTENCE}
    answered = ask(client, [QUESTION, asked.message.model_dump(exclude_none=True), result], thinking=thinking)
    assert answered.finish_reason == "stop"
    assert answered.message.content == SENTENCE
    assert answered.message.tool_calls is None


def test_a_value_that_is_no_text_keeps_its_type(client):
    asked = ask(client, [{"role": "user", "content": "Set a timer for 25 minutes."}])
    assert calls_of(asked.message) == [("function", "set_timer", {"minutes": 25})]


@pytest.mark.parametrize("thinking", [False, True], ids=["chat", "thinking"])
def test_a_stream_adds_up_to_the_plain_answer(client, thinking):
    plain = ask(client, [QUESTION], thinking=thinking)
    name, arguments, content, reasoning, ids, finish_reasons, num_pieces = "", "", "", "", [], [], 0
    for chunk in client.chat.completions.create(**request([QUESTION], thinking=thinking), **WIDE, stream=True):
        (choice,) = chunk.choices
        assert not finish_reasons, "the finish reason comes last"
        content += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            if call.id:
                ids.append(call.id)
                assert call.type == "function" and not arguments
                name = call.function.name
            num_pieces += bool(call.function.arguments)
            arguments += call.function.arguments or ""
        if choice.finish_reason:
            finish_reasons.append(choice.finish_reason)
    (expected,) = plain.message.tool_calls
    assert (name, arguments) == (expected.function.name, expected.function.arguments)
    assert (content, reasoning) == ("", getattr(plain.message, "reasoning_content", None) or "")
    assert finish_reasons == ["tool_calls"]
    assert len(ids) == 1
    # The value, its end and the end of the call are further apart than four tokens.
    assert num_pieces > 2, "arguments leave as they come"


def test_the_clients_own_accumulator_reads_the_stream(client):
    with client.beta.chat.completions.stream(**request([QUESTION])) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]


def test_calls_have_ids_of_their_own(client):
    ids = {call.id for _ in range(3) for call in ask(client, [QUESTION]).message.tool_calls}
    assert len(ids) == 3


def test_no_call_and_no_markup_where_the_request_forbids_it(client):
    refused = ask(client, [QUESTION], tool_choice="none")
    assert refused.message.tool_calls is None
    assert refused.finish_reason in ("stop", "length")
    assert "DSML" not in (refused.message.content or "")


def test_a_call_that_length_cuts_says_so(client):
    whole = ask(client, [QUESTION]).message.tool_calls[0].function.arguments
    completion = client.chat.completions.create(**request([QUESTION]))
    cut = ask(client, [QUESTION], max_tokens=completion.usage.completion_tokens - 12)
    assert cut.finish_reason == "length"
    for call in cut.message.tool_calls or []:
        assert len(call.function.arguments) < len(whole)
        assert whole.startswith(call.function.arguments)


def test_a_choice_that_asks_for_a_call_gets_the_models_own(client):
    """What the model would call anyway is called the same way when it must."""
    (free,) = ask(client, [QUESTION]).message.tool_calls
    named = {"type": "function", "function": {"name": "get_weather"}}
    strict = {"type": "function", "function": WEATHER["function"] | {"strict": True}}
    for fields in ({"tool_choice": "required"}, {"tool_choice": named}, {"tools": (strict, TIMER)}):
        choice = ask(client, [QUESTION], **fields)
        assert choice.finish_reason == "tool_calls"
        (call,) = choice.message.tool_calls
        assert call.function.name == free.function.name
        assert json.loads(call.function.arguments) == json.loads(free.function.arguments)


def test_a_call_that_the_model_would_not_make_is_made_where_it_must(client):
    timer = {"type": "function", "function": {"name": "set_timer"}}
    choice = ask(client, [QUESTION], tool_choice=timer)
    assert [call.function.name for call in choice.message.tool_calls] == ["set_timer"]
    assert isinstance(json.loads(choice.message.tool_calls[0].function.arguments)["minutes"], int)


@pytest.mark.parametrize("fields, param", [
    ({"tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "get_time"}}}, "tool_choice.function.name"),
    ({"tools": (WEATHER, WEATHER)}, "tools[1].function.name"),
    ({"tools": ({"type": "function", "function": WEATHER["function"] | {"strict": "yes"}},)},
     "tools[0].function.strict"),
])
def test_what_makes_no_sense_is_refused_by_name(client, fields, param):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, [QUESTION], **fields)
    assert error.value.param == param
