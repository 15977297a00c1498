"""A cluster answers as one process does: tools/generate, with the ids that Hugging Face's own tokenizer gives.

So this also holds the router's tokenizer, chat format and detokenizer to an implementation that is not ours.
"""

import subprocess

import numpy as np
import pytest
import tokenizers

from tests.e2e.asking import LONG_QUESTION, QUESTION, plain
from tests.e2e.cluster import ANSWER_SECONDS, binary
from tools.reference import checkpoint, model

MAX_TOKENS = 60


@pytest.fixture(scope="module")
def tokenizer(micro):
    return tokenizers.Tokenizer.from_file(str(micro / "tokenizer.json"))


def prompt_ids(tokenizer, messages, thinking):
    """A single user turn, as DeepSeek-V3.2's encoder writes it."""
    (message,) = messages
    text = "<｜begin▁of▁sentence｜><｜User｜>" + message["content"] + "<｜Assistant｜>"
    return tokenizer.encode(text + ("<think>" if thinking else "</think>"), add_special_tokens=False).ids


def generate(folder, prompt, **flags):
    command = [binary("tools/generate/generate"), f"--model_path={folder}", f"--max_new_tokens={MAX_TOKENS}"]
    command += [f"--prompt_ids={','.join(map(str, prompt))}"] + [f"--{name}={value}" for name, value in flags.items()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    assert result.returncode == 0, result.stderr
    return [int(token) for token in result.stdout.split(",")]


def text_of(tokenizer, tokens):
    """What a client sees: special tokens are left out, but for the markup that the parsers need to see."""
    special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    markup = {tokenizer.token_to_id(name) for name in ("<think>", "</think>", "｜DSML｜")}
    return tokenizer.decode([t for t in tokens if t not in special - markup], skip_special_tokens=False)


MESSAGES = {
    "short": QUESTION,
    "long": LONG_QUESTION,
    "languages": [{"role": "user", "content": "Grüße! 你好，世界。 naïve café 🙂 1234567 x = {'a': [1.5, -2]}\n\n\tEnd  "}],
}


@pytest.mark.parametrize("messages", MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize("thinking", [False, True], ids=["chat", "thinking"])
@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "seed": 11}, {"temperature": 1.2, "top_p": 1.0, "seed": 2**63 - 1}],
    ids=["greedy", "top_p", "hot"],
)
def test_the_cluster_answers_as_one_process_does(cluster, micro, tokenizer, messages, thinking, sampling):
    prompt = prompt_ids(tokenizer, messages, thinking)
    tokens = generate(micro, prompt, **sampling)
    with cluster.openai() as client:
        answer = plain(client, messages=messages, thinking=thinking, max_tokens=MAX_TOKENS, **sampling)
    assert answer.usage.prompt_tokens == len(prompt)
    assert answer.usage.completion_tokens == MAX_TOKENS
    if thinking:
        end = tokenizer.token_to_id("</think>")
        cut = tokens.index(end) if end in tokens else len(tokens)
        assert answer.reasoning == text_of(tokenizer, tokens[:cut])
        assert answer.content == text_of(tokenizer, tokens[cut + 1 :])
    else:
        assert answer.content == text_of(tokenizer, tokens)


def test_most_greedy_tokens_are_what_the_numpy_reference_would_say(micro, tokenizer):
    """Most, not all: with random weights FP32's rounding grows (tools/reference/README.md, Chaos)."""
    prompt = prompt_ids(tokenizer, LONG_QUESTION, thinking=False)
    tokens = generate(micro, prompt, temperature=0)
    logits = model.Model(checkpoint.Checkpoint(micro)).forward(prompt + tokens[:-1]).logits[len(prompt) - 1 :]
    assert np.mean(logits.argmax(1) == tokens) > 0.5
    drawn = np.take_along_axis(logits, np.array(tokens)[:, None], axis=1)[:, 0]
    assert np.median(np.sum(logits > drawn[:, None], axis=1)) == 0
