"""Answers that are held to a regular expression, a grammar or a schema, on every endpoint, with SGLang's fields.

Random weights at temperature 1.5: nothing but the constraint makes these answers what they are. Regular expressions are
judged by Python's re, grammars by Lark, which reads them in its own words.
"""

import json
import re
import subprocess

import jsonschema
import lark
import openai
import pytest

from tests.e2e import cluster as clusters
from tests.e2e.cluster import MODEL

DRAWN = {"temperature": 1.5, "top_p": 1}

REGEXES = [
    r"(yes|no)",
    r"^[A-Z][a-z]{1,8}( [A-Z][a-z]{1,8})?$",
    r"\d{3}-\d{4}(?:, \d{3}-\d{4}){0,2}",
    r"(?P<key>\w{1,6})=(?:'[^'\n]{0,5}'|\d+?)",
    r"[äöü世界🙂]{2,4}\.?",
    r"[^\s,;]{3,6}(;\S{1,4}){2}",
    r"\x41\u00e9[\t ]*.{1,5}[^\W_]",
    r"(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?|-[1-9]",
]

# In our EBNF, and in Lark's.
GRAMMARS = [
    ('root ::= expr\nexpr ::= term (("+" | "-") term){0,3}\nterm ::= [0-9]{1,3} | "(" expr ")"',
     'start: expr\nexpr: term (("+" | "-") term)~0..3\nterm: /[0-9]{1,3}/ | "(" expr ")"'),
    ('root ::= "[" ws (item ("," ws item){0,4})? "]"\nitem ::= "\\"" [^"\\\\\\n]{0,6} "\\"" | root\nws ::= [ \\t]{0,2}',
     'start: "[" WS? (item ("," WS? item)~0..4)? "]"\nitem: /"[^"\\\\\\n]{0,6}"/ | start\nWS: /[ \\t]{1,2}/'),
    ('root ::= pair rest\nrest ::= "" | ";" root # a list that ends in itself\npair ::= key "=" [0-9a-f]{2}\nkey ::= [a-zé世]{1,3}',
     'start: pair (";" pair)*\npair: /[a-zé世]{1,3}=[0-9a-f]{2}/'),
    ('root ::= "<" name ">" (root | "x"){0,2} "</>"\nname ::= "a" | "b" name | ""',
     'start: "<" /b*a|b+/? ">" (start | "x")~0..2 "</>"'),
]  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "s": {"type": "string", "maxLength": 6}},
    "required": ["n", "s"],
    "additionalProperties": False,
}


def judge(grammar):
    return lark.Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="resolve", keep_all_tokens=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, micro):
    with clusters.Cluster(tmp_path_factory.mktemp("fields") / "cluster", micro) as cluster:
        yield cluster
        cluster.wait_at_rest()


@pytest.fixture(scope="module")
def client(cluster):
    with cluster.openai() as client:
        yield client


def chat(client, **fields):
    messages = [{"role": "user", "content": "Say something."}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1500, n=4, **DRAWN, **fields)
    return [(choice.message.content, choice.finish_reason) for choice in answer.choices]


def chat_many(client, **fields):
    messages = [{"role": "user", "content": "Say something."}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, n=4, **DRAWN, **fields)
    return [(choice.message.content, choice.finish_reason) for choice in answer.choices]


def complete(client, **fields):
    answer = client.completions.create(model=MODEL, prompt="Say something.", max_tokens=1500, n=4, **DRAWN, **fields)
    return [(choice.text, choice.finish_reason) for choice in answer.choices]


def generate(cluster, sampling=None, **body):
    params = {"max_new_tokens": 1500, "n": 4} | DRAWN | (sampling or {})
    status, _, text = cluster.post({"text": "Say something.", "sampling_params": params} | body, "/generate")
    return status, json.loads(text)


def generated(cluster, seed, **form):
    status, answers = generate(cluster, {"sampling_seed": seed} | form)
    assert status == 200, answers
    return [(answer["text"], answer["meta_info"]["finish_reason"]["type"]) for answer in answers]


def on_every_endpoint(cluster, client, seed, **form):
    return (
        chat(client, seed=seed, extra_body=form)
        + complete(client, seed=seed, extra_body=form)
        + generated(cluster, seed, **form)
    )


@pytest.mark.parametrize("regex", REGEXES)
def test_answers_match_their_regular_expression(cluster, client, regex):
    answers = on_every_endpoint(cluster, client, 1, regex=regex)
    assert len(answers) == 12 and {reason for _, reason in answers} == {"stop"}, answers
    for text, _ in answers:
        assert re.fullmatch(regex, text), (regex, text)


@pytest.mark.parametrize("grammar, same", GRAMMARS)
def test_answers_are_of_their_grammar(cluster, client, grammar, same):
    parser = judge(same)
    answers = on_every_endpoint(cluster, client, 2, ebnf=grammar)
    finished = [text for text, reason in answers if reason == "stop"]
    assert len(finished) >= 6, answers  # lists without an end may go on to the last token
    for text in finished:
        parser.parse(text)


def test_answers_follow_their_schema_on_every_endpoint(cluster, client):
    answers = on_every_endpoint(cluster, client, 3, json_schema=json.dumps(SCHEMA))
    format = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    answers += complete(client, seed=4, extra_body={"response_format": format})
    assert len(answers) == 16 and {reason for _, reason in answers} == {"stop"}
    for text, _ in answers:
        jsonschema.validate(json.loads(text), SCHEMA)
    for text, reason in complete(client, seed=5, extra_body={"response_format": {"type": "json_object"}}):
        assert text.startswith("{") and (reason == "length" or isinstance(json.loads(text), dict))


def test_every_prompt_and_every_form_of_an_answer_is_held_to_it(cluster, client):
    pattern = r"[a-c]{4,9}!"
    answer = client.completions.create(
        model=MODEL, prompt=["One", "Two"], n=2, max_tokens=100, echo=True, extra_body={"regex": pattern}, **DRAWN)
    assert [re.fullmatch("(One|Two)" + pattern, choice.text) is not None for choice in answer.choices] == [True] * 4
    best = client.completions.create(
        model=MODEL, prompt="One", max_tokens=100, extra_body={"regex": pattern, "best_of": 3}, **DRAWN)
    assert re.fullmatch(pattern, best.choices[0].text)
    pieces = client.completions.create(
        model=MODEL, prompt="One", max_tokens=100, stream=True, extra_body={"regex": pattern}, **DRAWN)
    assert re.fullmatch(pattern, "".join(choice.text for piece in pieces for choice in piece.choices))


STRUCTURES = {
    "triggers": ["<"],
    "structures": [
        {"begin": "<n>", "schema": {"type": "integer", "minimum": 1, "maximum": 12}, "end": "</>"},
        {"begin": "<s>", "schema": SCHEMA, "end": "</>"},
    ],
}


def structures_in(text, is_cut):
    """Names and values of what every trigger begins; the last one may be missing its end where the answer was cut."""
    found, at = [], 0
    while (begin := text.find("<", at)) >= 0:
        name = text[begin + 1 : begin + 2]
        try:
            value, at = json.JSONDecoder().raw_decode(text, begin + 3)
            if len(text) - at < 3:
                raise ValueError("no end")
        except ValueError:
            assert is_cut, text
            return found
        assert text[begin : begin + 3] in ("<n>", "<s>") and text[at : at + 3] == "</>", text
        found.append((name, value))
        at += 3
    return found


def test_what_begins_with_a_trigger_is_a_structure(cluster, client, micro):
    # Random weights rarely write one letter among thousands: it is made likely.
    vocab = json.loads((micro / "tokenizer.json").read_text())["model"]["vocab"]
    fields = {"logit_bias": {str(vocab["<"]): 7}, "max_tokens": 300, "seed": 7}
    format = {"type": "structural_tag"} | STRUCTURES
    answers = chat_many(client, **fields, extra_body={"response_format": format})
    answers += chat_many(client, **fields, extra_body={"structural_tag": json.dumps(STRUCTURES)})
    found = [structure for text, reason in answers for structure in structures_in(text, reason == "length")]
    assert len(found) >= 8 and {name for name, _ in found} == {"n", "s"}, answers
    for name, value in found:
        jsonschema.validate(value, STRUCTURES["structures"]["ns".index(name)]["schema"])


def test_the_model_thinks_first(client, micro):
    tokenizer = json.loads((micro / "tokenizer.json").read_text())
    (think_end,) = [token["id"] for token in tokenizer["added_tokens"] if token["content"] == "</think>"]
    extra = {"chat_template_kwargs": {"thinking": True}, "regex": "(left|right){3}"}
    for text, reason in chat(client, seed=6, logit_bias={str(think_end): 9}, extra_body=extra):
        assert reason == "stop" and re.fullmatch("(left|right){3}", text)


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("fields, param, part", [
    ({"regex": "a(?=b)"}, "regex", "look-ahead is not supported at character 1"),
    ({"regex": "a\\b"}, "regex", "\\b is not supported at character 1"),
    ({"regex": "[ab]*a[ab]{30}"}, "regex", "takes more"),
    ({"ebnf": "root ::= root \"a\" | \"b\""}, "ebnf", "left recursion is not supported: root begins with itself"),
    ({"ebnf": "root ::= \"a\"\n  | other"}, "ebnf", "there is no rule named other, called at line 2, column 5"),
    ({"ebnf": "root ::= \"a\" root"}, "ebnf", "no answer satisfies it"),
    ({"json_schema": "{\"not\": {}}"}, "json_schema", "not is not supported (at /not)"),
    ({"json_schema": "nonsense"}, "json_schema", "not valid JSON"),
    ({"regex": "a", "ebnf": "root ::= \"a\""}, "ebnf", "is allowed only where regex is not sent"),
    ({"regex": "a", "response_format": {"type": "json_object"}}, "regex", "only where response_format is not sent"),
    ({"regex": "a", "ignore_eos": True}, "ignore_eos", "must be false where regex says how the answer ends"),
    ({"structural_tag": "{}"}, "structural_tag.triggers", "at least one element"),
])
def test_what_cannot_be_enforced_is_refused_by_name(cluster, client, fields, param, part):
    for create, prompt in [(client.completions.create, {"prompt": "a"}),
                           (client.chat.completions.create, {"messages": [{"role": "user", "content": "a"}]})]:
        with pytest.raises(openai.BadRequestError) as error:
            create(model=MODEL, max_tokens=5, extra_body=fields, **prompt)
        assert error.value.param == param
        assert part in error.value.message
    if "response_format" in fields:
        return
    status, answer = generate(cluster, fields)
    assert status == 400
    assert answer["error"]["param"] == "sampling_params." + param
    assert part.replace("where ", "where sampling_params.") in answer["error"]["message"]


def test_calls_and_a_regular_expression_do_not_go_together(client):
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, tools=[TOOL], extra_body={"regex": "a"})
    assert error.value.param == "regex" and "tool_choice must be none" in error.value.message
    for text, _ in chat(client, tools=[TOOL], tool_choice="none", extra_body={"regex": "ab?"}):
        assert text in ("a", "ab")


def written(kind, form):
    """Answers drawn from the constraint alone, many in a moment."""
    printed = subprocess.run(
        [clusters.binary("tests/constraints/write_answers"), f"--{kind}", form, "--answers", "60"],
        check=True, capture_output=True, text=True, encoding="utf-8")
    return [json.loads(line)["answer"] for line in printed.stdout.split("\n") if line]


@pytest.mark.parametrize("regex", REGEXES + [
    r"((a|bc)*d|e+?)(f{2,}|g?h{0,2})*", r"[\w.+-]+@[\w-]+\.[\w.]+", r"[^\d\n]{1,4}\D\W\S[\s]", r"(|a|(b|))c", r"\\[\]\-^]+\/",
])  # fmt: skip
def test_other_answers_match_too(regex):
    answers = written("regex", regex)
    assert len(answers) >= 30
    for text in answers:
        assert re.fullmatch(regex, text), (regex, text)


@pytest.mark.parametrize("grammar, same", GRAMMARS)
def test_other_answers_are_of_their_grammar_too(grammar, same):
    parser = judge(same)
    answers = [text for text in written("ebnf", grammar) if len(text) < 120]
    assert len(answers) >= 20
    for text in answers:
        parser.parse(text)
