"""langchain-openai: chat, streams, token usage, log-probabilities, batches, tools over two rounds, completions."""

import asyncio

import langchain_core.messages as messages
import langchain_core.tools
import langchain_openai
import openai
import pytest

from tests.clients import tools_of_an_agent as expected
from tests.e2e import cluster as clusters

THINKING = {"chat_template_kwargs": {"thinking": True}}


def model_of(cluster, **fields):
    arguments = {
        "base_url": cluster.url + "/v1", "api_key": "none", "model": clusters.MODEL, "temperature": 0,
        "max_tokens": 300, "max_retries": 0, "timeout": clusters.ANSWER_SECONDS,
    }
    return langchain_openai.ChatOpenAI(**arguments | fields)


def added_up(chunks):
    whole = None
    for chunk in chunks:
        whole = chunk if whole is None else whole + chunk
    return whole


def test_a_sum_is_right_and_its_tokens_are_counted(cluster):
    answer = model_of(cluster).invoke(expected.SUM_QUESTION)
    assert answer.content.endswith(expected.SUM_ANSWER)
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["model_name"] == clusters.MODEL
    usage = answer.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] >= 40


def test_a_stream_adds_up_to_the_plain_answer(cluster):
    model = model_of(cluster)
    plain = model.invoke(expected.SUM_QUESTION)
    chunks = list(model.stream(expected.SUM_QUESTION, stream_usage=True))
    whole = added_up(chunks)
    assert whole.content == plain.content
    assert whole.usage_metadata == plain.usage_metadata
    assert whole.response_metadata["finish_reason"] == "stop"


def test_reasoning_tokens_are_counted_apart(cluster):
    usage = model_of(cluster, extra_body=THINKING).invoke(expected.SUM_QUESTION).usage_metadata
    assert 0 < usage["output_token_details"]["reasoning"] < usage["output_tokens"]


def test_logprobs_have_one_entry_a_token(cluster):
    answer = model_of(cluster, max_tokens=8).bind(logprobs=True, top_logprobs=2).invoke(expected.SUM_QUESTION)
    entries = answer.response_metadata["logprobs"]["content"]
    assert len(entries) == answer.usage_metadata["output_tokens"] == 8
    assert "".join(entry["token"] for entry in entries) == answer.content
    for entry in entries:
        assert len(entry["top_logprobs"]) == 2
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"], "greedy takes the likeliest"


def test_a_batch_gives_what_each_question_gives_alone(cluster):
    questions = [f"What is {n} + 58?" for n in (3, 41, 777, 90210)]
    model = model_of(cluster)
    together = [answer.content for answer in asyncio.run(model_of(cluster).abatch(questions))]
    assert together == [model.invoke(question).content for question in questions]
    for answer, n in zip(together, (3, 41, 777, 90210)):
        assert answer.endswith(f"{n} + 58 = {n + 58}.")


def as_langchain(tools):
    functions = (tools.get_weather, tools.set_timer)
    return {function.__name__: langchain_core.tools.tool(function) for function in functions}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_tools_over_two_rounds(cluster, stream):
    tools = expected.Tools()
    by_name = as_langchain(tools)
    model = model_of(cluster, extra_body=THINKING).bind_tools(list(by_name.values()))
    history, sentences = [], []
    for question in (expected.TIMER_QUESTION, expected.WEATHER_QUESTION):
        history.append(messages.HumanMessage(question))
        while True:
            answer = added_up(model.stream(history)) if stream else model.invoke(history)
            history.append(answer)
            assert not answer.invalid_tool_calls
            if not answer.tool_calls:
                break
            history += [by_name[call["name"]].invoke(call) for call in answer.tool_calls]
        sentences.append(answer.content)
    assert tools.calls == [("set_timer", 25), ("get_weather", "Beijing")]
    assert sentences == [expected.TIMER_ANSWER, expected.WEATHER_ANSWER]


def test_completions_plain_streamed_and_in_a_batch(cluster):
    model = langchain_openai.OpenAI(
        base_url=cluster.url + "/v1", api_key="none", model=clusters.MODEL, temperature=0, max_tokens=12,
        max_retries=0,
    )
    prompts = ["What is 3 + 4?", "The weather in Beijing is"]
    alone = [model.invoke(prompt) for prompt in prompts]
    assert all(alone)
    assert ["".join(model.stream(prompt)) for prompt in prompts] == alone
    assert model.batch(prompts) == alone, "one request with two prompts"


def test_a_refusal_reaches_the_caller_as_the_clients_own_exception(cluster):
    with pytest.raises(openai.BadRequestError) as caught:
        model_of(cluster, temperature=3).invoke("hello")
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        model_of(cluster, model="gpt-4").invoke("hello")
