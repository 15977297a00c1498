"""Questions as the official client asks them, and what a stream adds up to."""

import dataclasses

from tests.e2e.cluster import MODEL

QUESTION = [{"role": "user", "content": "What is the capital of Italy?"}]
# About 370 tokens: several pages, several chunks of 64 or 100, far beyond v32-micro's index_topk of 16.
LONG_QUESTION = [{"role": "user", "content": "How many days are there in a week? There are seven days. " * 24}]
THINKING = {"chat_template_kwargs": {"thinking": True}}


@dataclasses.dataclass
class Answer:
    content: str
    reasoning: str | None
    finish_reason: str
    usage: object  # without what the prefix cache made of it: that depends on what was asked before
    num_deltas: int = 0
    logprobs: object = None  # of plain answers that were asked for them
    cached_tokens: int = dataclasses.field(default=0, compare=False)


def request(messages=QUESTION, max_tokens=24, thinking=False, extra=None, **fields):
    """Greedy and of a fixed length unless told otherwise: the end-of-sequence token is as likely as any other here."""
    body = {"ignore_eos": True} | (THINKING if thinking else {}) | (extra or {})
    return {"model": MODEL, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "extra_body": body} | fields


def chat(**fields):
    """The JSON object that the client would send."""
    body = request(**fields)
    return body | body.pop("extra_body")


def taken_apart(usage):
    """(usage without its cached tokens, cached tokens)"""
    cached_tokens, usage.prompt_tokens_details = usage.prompt_tokens_details.cached_tokens, None
    return usage, cached_tokens


def plain(client, **fields):
    completion = client.chat.completions.create(**request(**fields))
    (choice,) = completion.choices
    usage, cached_tokens = taken_apart(completion.usage)
    return Answer(
        choice.message.content or "",
        getattr(choice.message, "reasoning_content", None),
        choice.finish_reason,
        usage,
        logprobs=choice.logprobs,
        cached_tokens=cached_tokens,
    )


def streamed(client, **fields):
    """Adds a stream up, checking what every stream must keep to."""
    stream = client.chat.completions.create(
        **request(**fields), stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    content, reasoning, finish_reasons, usages = [], [], [], []
    for chunk in chunks:
        if chunk.usage is not None:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            assert not finish_reasons or not choice.delta.content, "text after the finish reason"
            if choice.delta.content:
                content.append(choice.delta.content)
            if getattr(choice.delta, "reasoning_content", None):
                assert not content, "reasoning after content"
                reasoning.append(choice.delta.reasoning_content)
            if choice.finish_reason:
                finish_reasons.append(choice.finish_reason)
    (finish_reason,) = finish_reasons
    (usage,) = usages
    assert chunks[-1].choices == [] and chunks[-1].usage is usage, "usage comes last, without choices"
    num_deltas = len(content) + len(reasoning)
    usage, cached_tokens = taken_apart(usage)
    return Answer(
        "".join(content),
        "".join(reasoning) if reasoning else None,
        finish_reason,
        usage,
        num_deltas,
        cached_tokens=cached_tokens,
    )
