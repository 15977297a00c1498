"""Which documents, how many of each, and the split between training and evaluation.

The shares are of documents. A generator is a seeded random.Random: training seeds are even numbers, evaluation seeds odd,
and operand pairs and tool names of evaluation never occur in training (document.is_held_out).
"""

from tasks import arithmetic, retrieval, small_talk, tool_calls

RETRIEVAL_SHARE = 0.08
# Of draw_long: (share, longest text in tokens) of retrieval documents.
LENGTHS = [(0.40, 1500), (0.25, 4000), (0.19, 8200), (0.16, 15700)]


def draw(rng, retrieval_tokens_max, held_out=False):
    u = rng.random()
    thinking = rng.random() < 0.6
    if u < 0.22:
        return arithmetic.percent(rng, held_out, thinking)
    if u < 0.38:
        return arithmetic.operation(rng, held_out, thinking)
    if u < 0.47:
        return arithmetic.word_problem(rng, held_out, thinking)
    if u < 0.77:
        return tool_calls.tools(rng, held_out, rng.random() < 0.5)
    if u < 0.77 + RETRIEVAL_SHARE:
        high = retrieval_tokens_max if rng.random() < 0.7 else max(60, retrieval_tokens_max // 3)
        return retrieval.retrieval(rng, rng.randint(40, max(60, high)))
    return short_answer(rng)


def short_answer(rng):
    u = rng.random()
    if u < 0.47:
        short = small_talk.copy(rng)
    elif u < 0.60:
        short = small_talk.recall(rng)
    elif u < 0.80:
        short = small_talk.json_answer(rng)
    elif u < 0.87:
        short = small_talk.fixed(rng)
    else:
        short = small_talk.unknown(rng)
    return small_talk.thinking_form(short, rng) if rng.random() < 0.35 else short


def draw_long(rng, held_out=False):
    """Texts up to 16k tokens with many questions, functions that are easily confused, and enough of the rest that nothing is
    forgotten."""
    u = rng.random()
    if u < 0.55:
        thinking = rng.random() < 0.65
        if u < 0.13:
            return arithmetic.percent(rng, held_out, thinking)
        if u < 0.27:
            return arithmetic.operation(rng, held_out, thinking)
        if u < 0.35:
            return arithmetic.word_problem(rng, held_out, thinking)
        if u < 0.43:
            return tool_calls.tools(rng, held_out, thinking)
        return tool_calls.tools(rng, held_out, rng.random() < 0.5, hard=True)
    if u < 0.75:
        return tool_calls.tools(rng, held_out, rng.random() < 0.5, hard=True)
    if u < 0.82:
        return long_retrieval(rng)
    return short_answer(rng) if u < 0.92 else draw(rng, 300, held_out)


def draw_tools(rng, held_out=False):
    """Mostly functions to choose from, short documents, and enough of the rest."""
    return mostly_tools(rng, held_out, [1, 2, 3, 4, 4, 4], (0.34, 0.68, 0.75, 0.83, 0.87, 0.90))


def draw_types(rng, held_out=False):
    """What is still weak after that: types of arguments that only the schema tells, with one function as with four, the
    order of parameters without thinking, and the sums of percentages."""
    return mostly_tools(rng, held_out, [1, 1, 2, 3, 4, 4, 4], (0.42, 0.58, 0.73, 0.81, 0.86, 0.88))


def mostly_tools(rng, held_out, nums_tools, ends):
    """ends: where the shares of hard and of easy functions, percentages, operations, word problems and short retrieval end;
    the rest is short answers."""
    hard, easy, percent, operation, word_problem, short_retrieval = ends
    u = rng.random()
    if u < easy:
        is_hard = u < hard
        return tool_calls.tools(rng, held_out, rng.random() < 0.5, rng.choice(nums_tools), is_hard)
    thinking = rng.random() < 0.65
    if u < percent:
        return arithmetic.percent(rng, held_out, thinking)
    if u < operation:
        return arithmetic.operation(rng, held_out, thinking)
    if u < word_problem:
        return arithmetic.word_problem(rng, held_out, thinking)
    if u < short_retrieval:
        return retrieval.retrieval(rng, rng.randint(40, 2000))
    return short_answer(rng)


def long_retrieval(rng):
    low, v = 40, rng.random()
    for share, high in LENGTHS:
        if v < share:
            break
        v -= share
        low = high
    length = rng.randint(low, high)
    # A long text is dear and its filler teaches nothing: it is asked about often.
    facts = rng.randint(1, 12) if length < 2000 else rng.randint(6, 20)
    return retrieval.retrieval(rng, length, facts, None if length < 2000 else rng.randint(3, facts))


# The table of checkpoints/tandem-tiny/README.md: name -> a function of (rng) that makes one held-out document.
EVALUATION = {
    "percent, thinking": lambda rng: arithmetic.percent(rng, True, True),
    "percent, chat": lambda rng: arithmetic.percent(rng, True, False),
    "add, thinking": lambda rng: arithmetic.operation(rng, True, True, "add"),
    "sub, thinking": lambda rng: arithmetic.operation(rng, True, True, "sub"),
    "mul, thinking": lambda rng: arithmetic.operation(rng, True, True, "mul"),
    "div, thinking": lambda rng: arithmetic.operation(rng, True, True, "div"),
    "word problem, thinking": lambda rng: arithmetic.word_problem(rng, True, True),
    "word problem, chat": lambda rng: arithmetic.word_problem(rng, True, False),
    "tools 1, thinking": lambda rng: tool_calls.tools(rng, True, True, 1),
    "tools 4, thinking": lambda rng: tool_calls.tools(rng, True, True, 4),
    "tools 1, chat": lambda rng: tool_calls.tools(rng, True, False, 1),
    "tools 4, chat": lambda rng: tool_calls.tools(rng, True, False, 4),
    "retrieval 1k": lambda rng: retrieval.retrieval(rng, 1000, 6, 1),
    "retrieval 4k": lambda rng: retrieval.retrieval(rng, 3900, 6, 1),
    "retrieval 8k": lambda rng: retrieval.retrieval(rng, 7800, 6, 1),
    "retrieval 16k": lambda rng: retrieval.retrieval(rng, 15700, 6, 1),
    "copy": small_talk.copy,
    "recall": small_talk.recall,
    "json": small_talk.json_answer,
    "fixed answers": small_talk.fixed,
    "unknown": small_talk.unknown,
}
