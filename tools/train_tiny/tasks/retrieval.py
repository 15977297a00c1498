"""Facts hidden in long filler text, asked for one by one: what sparse attention must find."""

from tasks import words
from tasks.document import Document, assistant, user

FILLERS = [
    "The {c} {n} stood near the old {m}.", "{N} walked to the {n} and looked at the {m}.",
    "Nobody knew why the {n} was so {c}.", "In the morning the {n} was quiet.",
    "{N} told a long story about a {c} {n}.", "The {m} was built before the {n}.",
    "They carried the {n} over the {m}.", "A {c} {n} is better than a {d} {m}.", "It rained on the {n} all day.",
    "{N} painted the {n} {c}.", "The road went from the {n} to the {m}.", "{N} and {O} met at the {m}.",
]


def filler(rng):
    return rng.choice(FILLERS).format(c=rng.choice(words.COLORS), d=rng.choice(words.COLORS), n=rng.choice(words.NOUNS),
                                      m=rng.choice(words.NOUNS), N=words.name(rng), O=words.name(rng))


def fact(rng):
    thing = f"{rng.choice(words.COLORS)} {words.any_word(rng)}"
    kind = rng.choice(["access code", "number", "password", "secret key"])
    value = words.digits(rng, 4, 6) if kind != "password" else words.word(rng)
    return thing, kind, value


def retrieval(rng, length, num_facts=None, num_questions=None):
    """About `length` tokens (a sentence of filler is about 11) with facts at random places."""
    facts = {}
    for _ in range(num_facts or rng.randint(1, 12)):
        thing, kind, value = fact(rng)
        facts.setdefault((thing, kind), value)
    sentences = [filler(rng) for _ in range(max(1, length // 11))]
    for (thing, kind), value in facts.items():
        sentences.insert(rng.randint(0, len(sentences)), f"The {kind} of the {thing} is {value}.")
    asked = rng.sample(list(facts), min(len(facts), num_questions or rng.randint(1, 8)))
    messages = []
    for i, (thing, kind) in enumerate(asked):
        question = f"What is the {kind} of the {thing}?"
        if i == 0:
            text = " ".join(sentences)
            question = f"{text}\n\n{question}" if rng.random() < 0.8 else f"Read this text and answer.\n{text}\n\n{question}"
        messages += [user(question), assistant(f"The {kind} of the {thing} is {facts[(thing, kind)]}.")]
    return Document("retrieval", messages, prompt_weight=0.0)
