"""The mixtures of the later trainings: calls fit their schemas, the held-out split holds, long texts hold what is asked."""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tasks import mixture, tool_calls  # noqa: E402
from tasks.document import is_held_out  # noqa: E402
from tasks.words import VERBS  # noqa: E402

PYTHON_TYPE = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


def hard_dialogues(count):
    rng = random.Random(2)
    return [tool_calls.tools(rng, False, rng.random() < 0.5, hard=True) for _ in range(count)]


def test_every_call_fits_its_schema_in_its_order():
    calls = 0
    for document in hard_dialogues(300):
        schemas = {schema["name"]: schema["parameters"]["properties"] for schema in document.tools}
        assert len(schemas) == len(document.tools)
        for name, arguments in (call for message in document.messages for call in message.get("calls") or []):
            calls += 1
            order = [key for key in schemas[name] if key in arguments]
            assert list(arguments) == order
            for key, value in arguments.items():
                kind = schemas[name][key]["type"]
                assert isinstance(value, PYTHON_TYPE[kind]) and (kind == "boolean" or not isinstance(value, bool))
    assert calls > 200


def test_texts_that_look_like_other_types_are_common():
    texts = [value for document in hard_dialogues(300) for message in document.messages
             for _, arguments in message.get("calls") or [] for value in arguments.values() if isinstance(value, str)]
    assert sum(text.replace(".", "").isdigit() for text in texts) > len(texts) // 5


def test_no_function_of_the_evaluation_is_trained_on():
    for document in hard_dialogues(300):
        for schema in document.tools:
            verb, rest = schema["description"].lower().split(" ", 1)
            if verb in VERBS and rest.startswith("the ") and " " not in rest[4:]:
                assert not is_held_out("tool", verb, rest[4:], modulus=tool_calls.HELD_OUT)


def test_every_fact_asked_for_stands_in_the_text():
    rng = random.Random(4)
    for _ in range(20):
        messages = mixture.long_retrieval(rng).messages
        text = messages[0]["content"].lower()
        for answer in (message["content"] for message in messages if message["role"] == "assistant"):
            assert answer.lower() in text


def test_later_mixtures_hold_every_kind_of_task():
    for draw in (mixture.draw_long, mixture.draw_tools, mixture.draw_types):
        rng = random.Random(6)
        families = {draw(rng).family for _ in range(400)}
        assert {"percent", "tools", "retrieval"} <= families, draw.__name__
