"""The training text's chat encoding against the examples of DeepSeek-V3.2's format, written out by hand, and the tasks'
own promises. The router's encoder is held to the same format by router/chat/v32_encoder_test.cc."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import chat  # noqa: E402
from tasks import arithmetic, mixture  # noqa: E402

BOS, EOS, USER, AST = chat.BOS, chat.EOS, chat.USER, chat.ASSISTANT


def user(text):
    return {"role": "user", "content": text}


CALL = {"role": "assistant", "content": "", "reasoning": "r", "calls": [("f", {"x": 1})]}
CALL_TEXT = ("\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" string=\"false\">1"
             "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>" + EOS)


def test_a_question_ends_open_for_thinking_or_closed():
    assert chat.render([user("Hi")], thinking=True) == f"{BOS}{USER}Hi{AST}<think>"
    assert chat.render([user("Hi")], thinking=False) == f"{BOS}{USER}Hi{AST}</think>"


def test_reasoning_stays_across_tool_results_of_the_same_turn():
    text = chat.render([user("a"), CALL, {"role": "tool", "content": "R"}], thinking=True)
    assert text == (f"{BOS}{USER}a{AST}<think>r</think>{CALL_TEXT}"
                    "\n\n<function_results>\n<result>R</result>\n</function_results>\n\n<think>")


def test_reasoning_is_dropped_once_the_user_speaks_again():
    text = chat.render([user("a"), CALL, {"role": "tool", "content": "R"},
                        {"role": "assistant", "content": "fin", "reasoning": "s"}, user("b")], thinking=True)
    assert text == (f"{BOS}{USER}a{AST}</think>{CALL_TEXT}"
                    f"\n\n<function_results>\n<result>R</result>\n</function_results>\n\n</think>fin{EOS}{USER}b{AST}<think>")


def test_tools_go_to_the_system_message():
    text = chat.render([{"role": "system", "content": "S"}, user("a")], False, [{"name": "f"}])
    assert text == f'{BOS}S\n\n{chat.TOOLS_PREAMBLE}{{"name": "f"}}\n</functions>\n{USER}a{AST}</think>'


def test_worked_arithmetic_is_right():
    rng = random.Random(7)
    for _ in range(500):
        a, b = rng.randint(1, 99999), rng.randint(2, 99)
        assert arithmetic.compute("add", a, b)[1] == str(a + b)
        assert arithmetic.compute("mul", b, a)[1] == str(a * b)
        high, low = max(a, b), min(a, b)
        assert arithmetic.compute("sub", high, low)[1] == str(high - low)
        quotient, rest = divmod(a, b)
        assert arithmetic.compute("div", a, b)[1] == (str(quotient) if rest == 0 else f"{quotient} rest {rest}")
        lines, _ = arithmetic.compute("add", a, b)
        assert lines[-1].replace("Digits: ", "").replace(" ", "") == str(a + b)


def test_every_family_renders_and_ends_with_the_assistant():
    rng = random.Random(8)
    for _ in range(500):
        document = mixture.draw(rng, 300)
        assert chat.render(document.messages, document.thinking, document.tools).endswith(EOS)
