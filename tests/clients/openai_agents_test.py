"""openai-agents, OpenAI's own agent loop, over chat completions: its sessions, tools, streams and reasoning.

What is right is said by the request and by the functions that it offers. Its tools are `strict`, as the library has
them: the endpoint holds their arguments to the schema.
"""

import asyncio

import agents
import openai
import pytest

from tests.clients import tools_of_an_agent as expected
from tests.e2e import cluster as clusters

THINKING = pytest.mark.parametrize("thinking", [False, True], ids=["chat", "thinking"])
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])


@pytest.fixture(autouse=True)
def no_tracing():
    agents.set_tracing_disabled(True)  # the package would send its traces to its maker


def converse(cluster, questions, tools, thinking, stream):
    """The results of questions asked one after the other in one session."""

    async def run():
        async with openai.AsyncOpenAI(
            base_url=cluster.url + "/v1", api_key="none", max_retries=0, timeout=clusters.ANSWER_SECONDS
        ) as client:
            agent = agents.Agent(
                name="assistant",
                model=agents.OpenAIChatCompletionsModel(model=clusters.MODEL, openai_client=client),
                tools=[agents.function_tool(function) for function in (tools.get_weather, tools.set_timer)],
                model_settings=agents.ModelSettings(
                    temperature=0,
                    max_tokens=200,
                    include_usage=True,
                    extra_body={"chat_template_kwargs": {"thinking": thinking}},
                ),
            )
            session, results = agents.SQLiteSession("test"), []
            for question in questions:
                if stream:
                    result = agents.Runner.run_streamed(agent, question, session=session)
                    async for _ in result.stream_events():
                        pass
                else:
                    result = await agents.Runner.run(agent, question, session=session)
                results.append(result)
            return results

    return asyncio.run(run())


def kinds(result):
    return [type(item).__name__ for item in result.new_items]


@STREAM
def test_two_rounds_of_tools_in_one_session(cluster, stream):
    tools = expected.Tools()
    questions = [expected.TIMER_QUESTION, expected.WEATHER_QUESTION]
    results = converse(cluster, questions, tools, thinking=True, stream=stream)
    assert tools.calls == [("set_timer", 25), ("get_weather", "Beijing")]
    assert [result.final_output for result in results] == [expected.TIMER_ANSWER, expected.WEATHER_ANSWER]
    for result in results:
        assert kinds(result) == [
            "ReasoningItem", "ToolCallItem", "ToolCallOutputItem", "ReasoningItem", "MessageOutputItem",
        ]


@THINKING
@STREAM
def test_two_calls_in_one_round(cluster, thinking, stream):
    tools = expected.Tools()
    (result,) = converse(cluster, [expected.BOTH_QUESTION], tools, thinking, stream)
    assert sorted(tools.calls) == [("get_weather", "Paris"), ("set_timer", 7)]
    assert result.final_output == expected.BOTH_ANSWER
    calls = [item.raw_item for item in result.new_items if isinstance(item, agents.ToolCallItem)]
    assert len({call.call_id for call in calls}) == 2


@STREAM
def test_the_usage_of_a_run_is_that_of_its_two_requests(cluster, stream):
    counted = ("tandem_prompt_tokens_total", "tandem_generation_tokens_total")
    before = [cluster.router.metric(name) for name in counted]
    (result,) = converse(cluster, [expected.WEATHER_QUESTION], expected.Tools(), thinking=True, stream=stream)
    cluster.wait_at_rest()
    after = [cluster.router.metric(name) for name in counted]
    usage = result.context_wrapper.usage
    assert usage.requests == 2
    assert [usage.input_tokens, usage.output_tokens] == [b - a for a, b in zip(before, after)]
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens


def test_an_agent_that_reports_a_bad_field_says_which(cluster):
    async def run():
        async with openai.AsyncOpenAI(base_url=cluster.url + "/v1", api_key="none", max_retries=0) as client:
            agent = agents.Agent(
                name="assistant",
                model=agents.OpenAIChatCompletionsModel(model=clusters.MODEL, openai_client=client),
                model_settings=agents.ModelSettings(temperature=7),
            )
            await agents.Runner.run(agent, "hello")

    with pytest.raises(openai.BadRequestError) as caught:
        asyncio.run(run())
    assert caught.value.param == "temperature"
