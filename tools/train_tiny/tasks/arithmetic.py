"""Percentages, the four operations and small word problems, with the working written out digit by digit.

What a small model can do reliably is one small step after another, each visible in the text: partial products with a
running total, column sums with their carries, long division with every remainder.
"""

from decimal import Decimal

from tasks.document import Document, assistant, is_held_out, user

HELD_OUT = 13  # one operand pair in 13


def number(rng, digits_max):
    digits = rng.randint(1, digits_max)
    return rng.randint(10 ** (digits - 1) if digits > 1 else 1, 10**digits - 1)


def pair(rng, held_out, draw, operation):
    """Operands that belong to the wanted side of the split."""
    while True:
        a, b = draw(rng)
        if is_held_out(operation, a, b, modulus=HELD_OUT) == held_out:
            return a, b


def plain(value):
    text = format(Decimal(value), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def multiply(small, large):
    """Lines of small * large, small of at most two digits: one place of `large` a line, with the total so far."""
    lines, total = [], 0
    text = str(large)
    for i, digit in enumerate(text):
        if digit == "0":
            continue
        part = int(digit) * 10 ** (len(text) - 1 - i)
        product = small * part
        total += product
        if product == total:
            lines.append(f"{small} * {part} = {product}")
        else:
            lines.append(f"{small} * {part} = {product}, {total - product} + {product} = {total}")
    return lines, total


def add(a, b):
    """Column sums from the right."""
    lines, carry, digits = [], 0, []
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(max(len(x), len(y))):
        p, q = int(x[i]) if i < len(x) else 0, int(y[i]) if i < len(y) else 0
        s = p + q + carry
        lines.append(f"{p} + {q} + {carry} = {s}")
        digits.append(s % 10)
        carry = s // 10
    if carry:
        digits.append(carry)
    lines.append("Digits: " + " ".join(str(d) for d in reversed(digits)))
    return lines, a + b


def subtract(a, b):
    """Columns from the right, a >= b; a borrow is announced before it is used."""
    lines, borrow, digits = [], 0, []
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(len(x)):
        p, q = int(x[i]), int(y[i]) if i < len(y) else 0
        need = q + borrow
        if p < need:
            lines.append(f"{p} - {need} borrow, {p + 10} - {need} = {p + 10 - need}")
            digits.append(p + 10 - need)
            borrow = 1
        else:
            lines.append(f"{p} - {need} = {p - need}")
            digits.append(p - need)
            borrow = 0
    lines.append("Digits: " + " ".join(str(d) for d in reversed(digits)))
    return lines, a - b


def divide(a, b):
    """Long division by one digit or two, with quotient and rest."""
    lines, rest, quotient = [], 0, ""
    for digit in str(a):
        value = rest * 10 + int(digit)
        q = value // b
        rest = value - q * b
        lines.append(f"{value} / {b} = {q}, {q} * {b} = {q * b}, rest {rest}")
        quotient += str(q)
    lines.append("Digits: " + " ".join(quotient))
    return lines, int(quotient), rest


PERCENT_QUESTIONS = [
    "What is {p}% of {n}?",
    "Solve this problem step by step: What is {p}% of {n}?",
    "Calculate {p}% of {n}.",
    "How much is {p} percent of {n}?",
    "{p}% of {n}?",
    "Please find {p}% of {n}.",
    "Can you tell me what {p}% of {n} is?",
]


def percent_working(p, n):
    lines, product = multiply(p, n)
    value = plain(Decimal(product) / 100)
    return [f"{p}% of {n} is {p} * {n} / 100."] + lines + [f"{product} / 100 = {value}"], value


def percent(rng, held_out, thinking):
    p, n = pair(rng, held_out, lambda r: (r.randint(1, 99), number(r, 4)), "percent")
    question = rng.choice(PERCENT_QUESTIONS).format(p=p, n=n)
    lines, value = percent_working(p, n)
    answer = f"{p}% of {n} is {value}."
    if thinking:
        reply = assistant(answer, reasoning="\n".join(lines))
    else:
        reply = assistant("\n".join(lines) + "\n" + answer)
    return Document("percent", [user(question), reply], thinking)


OPERATIONS = {
    "add": (["What is {a} + {b}?", "Calculate {a} + {b}.", "Add {a} and {b}.", "What is the sum of {a} and {b}?"],
            "{a} + {b} = {v}."),
    "sub": (["What is {a} - {b}?", "Calculate {a} - {b}.", "Subtract {b} from {a}."], "{a} - {b} = {v}."),
    "mul": (["What is {a} * {b}?", "Calculate {a} * {b}.", "Multiply {a} by {b}.", "What is {a} times {b}?"],
            "{a} * {b} = {v}."),
    "div": (["What is {a} / {b}?", "Calculate {a} / {b}.", "Divide {a} by {b}."], "{a} / {b} = {v}."),
}


def draw_operands(operation):
    def draw(rng):
        if operation == "add":
            return number(rng, 5), number(rng, 5)
        if operation == "sub":
            a, b = number(rng, 5), number(rng, 5)
            return max(a, b), min(a, b)
        if operation == "mul":
            return rng.randint(2, 99), number(rng, 4)
        return number(rng, 5), rng.randint(2, 12)

    return draw


def compute(operation, a, b):
    """(lines, value as text)."""
    if operation == "add":
        lines, value = add(a, b)
        return lines, str(value)
    if operation == "sub":
        lines, value = subtract(a, b)
        return lines, str(value)
    if operation == "mul":
        lines, value = multiply(a, b)
        return lines, str(value)
    lines, quotient, rest = divide(a, b)
    return lines, str(quotient) if rest == 0 else f"{quotient} rest {rest}"


def operation(rng, held_out, thinking, name=None):
    name = name or rng.choice(list(OPERATIONS))
    a, b = pair(rng, held_out, draw_operands(name), name)
    questions, template = OPERATIONS[name]
    lines, value = compute(name, a, b)
    answer = template.format(a=a, b=b, v=value)
    question = rng.choice(questions).format(a=a, b=b)
    if thinking:
        reply = assistant(answer, reasoning="\n".join(lines))
    else:
        reply = assistant("\n".join(lines) + "\n" + answer)
    return Document(name, [user(question), reply], thinking)


NAMES = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ida", "Jonas", "Kim", "Lena", "Max", "Nora",
         "Omar", "Paula", "Quinn", "Rosa", "Sam", "Tara", "Wei", "Yuki", "Zoe"]
THINGS = ["apples", "books", "coins", "pens", "stamps", "cards", "eggs", "stones", "tickets", "boxes", "shells", "plants"]


def word_problem(rng, held_out, thinking):
    name, friend = rng.sample(NAMES, 2)
    thing = rng.choice(THINGS)
    kind = rng.choice(["add", "sub", "mul", "discount"])
    if kind == "add":
        a, b = pair(rng, held_out, lambda r: (number(r, 4), number(r, 4)), "word add")
        question = rng.choice([
            f"{name} has {a} {thing} and {friend} gives {name} {b} more. How many {thing} does {name} have now?",
            f"{name} has {a} {thing} and {friend} has {b}. How many {thing} do they have together?"])
        lines, value = compute("add", a, b)
        first, answer = f"{a} + {b}:", f"The answer is {value} {thing}."
    elif kind == "sub":
        a, b = pair(rng, held_out, draw_operands("sub"), "word sub")
        question = f"{name} has {a} {thing} and gives {b} of them to {friend}. How many {thing} are left?"
        lines, value = compute("sub", a, b)
        first, answer = f"{a} - {b}:", f"The answer is {value} {thing}."
    elif kind == "mul":
        a, b = pair(rng, held_out, lambda r: (r.randint(2, 99), number(r, 3)), "word mul")
        question = f"{name} buys {a} boxes with {b} {thing} in each box. How many {thing} is that?"
        lines, value = compute("mul", a, b)
        first, answer = f"{a} * {b}:", f"The answer is {value} {thing}."
    else:
        p, n = pair(rng, held_out, lambda r: (r.randint(1, 95), number(r, 4)), "discount")
        question = f"A ticket costs {n} dollars. {name} gets {p}% off. How much is the discount?"
        lines, value = percent_working(p, n)
        first, answer = None, f"The answer is {value} dollars."
    working = "\n".join(([first] if first else []) + lines)
    if thinking:
        reply = assistant(answer, reasoning=working)
    else:
        reply = assistant(working + "\n" + answer)
    return Document("word", [user(question), reply], thinking)
