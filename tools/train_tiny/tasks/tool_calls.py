"""Tool calls in DSML: one to four functions with one to three parameters, their results, and the final sentence.

Half of the functions are everyday ones with everyday requests, half are invented, so that names, parameters and values
must be copied from the prompt instead of remembered.
"""

import json

from tasks import arithmetic, words
from tasks.document import Document, assistant, is_held_out, system, tool, user

HELD_OUT = 9  # one invented verb-noun pair in 9


def schema(name, description, parameters, required):
    """parameters: {key: (type, description, enum or None)}."""
    properties = {}
    for key, (kind, text, enum) in parameters.items():
        properties[key] = {"type": kind}
        if enum:
            properties[key]["enum"] = enum
        properties[key]["description"] = text
    return {"name": name, "description": description,
            "parameters": {"type": "object", "properties": properties, "required": required}}


def city(rng):
    return rng.choice(words.CITIES) if rng.random() < 0.7 else words.name(rng)


# Each everyday function: returns (schema, request clause, arguments, result, sentence). The clause completes "Please ..".

def weather(rng):
    place = city(rng)
    units = ["celsius", "fahrenheit"]
    arguments = {"location": place}
    clause = rng.choice([f"What's the weather in {place}?", f"What is the weather in {place}?",
                         f"How is the weather in {place}?", f"Tell me the weather in {place}."])
    degrees, letter = rng.randint(-15, 39), "C"
    if rng.random() < 0.4:
        arguments["unit"] = rng.choice(units)
        clause = f"What is the weather in {place} in {arguments['unit']}?"
        letter = arguments["unit"][0].upper()
    sky = rng.choice(["sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "clear"])
    sentence = f"The weather in {place} is {degrees}°{letter} and {sky}."
    result = sentence if rng.random() < 0.5 else json.dumps(
        {"temperature": degrees, "unit": letter, "condition": sky}, ensure_ascii=False)
    description = rng.choice(["Get the current weather for a location", "Get the weather of a city",
                              "Current weather in a place"])
    what = rng.choice(["City name", "The city", "City name, e.g. Beijing"])
    return (schema("get_weather", description,
                   {"location": ("string", what, None), "unit": ("string", "Temperature unit", units)}, ["location"]),
            clause, arguments, result, sentence)


def clock(rng):
    place = city(rng)
    time = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    return (schema("get_time", "Get the current time in a city", {"city": ("string", "City name", None)}, ["city"]),
            rng.choice([f"What time is it in {place}?", f"Tell me the time in {place}."]), {"city": place},
            rng.choice([time, json.dumps({"time": time})]), f"It is {time} in {place}.")


def currency(rng):
    amount, source, target = rng.randint(1, 9999), *rng.sample(["USD", "EUR", "CNY", "JPY", "GBP", "CHF", "INR"], 2)
    value = f"{rng.randint(1, 9999)}.{rng.randint(10, 99)}"
    return (schema("convert_currency", "Convert an amount of money",
                   {"amount": ("number", "Amount", None), "source": ("string", "Currency code", None),
                    "target": ("string", "Currency code", None)}, ["amount", "source", "target"]),
            rng.choice([f"Convert {amount} {source} to {target}.", f"How much is {amount} {source} in {target}?"]),
            {"amount": amount, "source": source, "target": target},
            rng.choice([value, json.dumps({"value": float(value)})]) if not value.endswith("0") else value,
            f"{amount} {source} is {value} {target}.")


def stock(rng):
    symbol = "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(rng.randint(3, 4)))
    price = f"{rng.randint(1, 999)}.{rng.randint(11, 99)}"
    return (schema("get_stock_price", "Get the price of a stock", {"symbol": ("string", "Ticker symbol", None)},
                   ["symbol"]),
            rng.choice([f"What is the price of {symbol}?", f"Get the stock price of {symbol}."]), {"symbol": symbol},
            price, f"The price of {symbol} is {price}.")


def timer(rng):
    minutes = rng.randint(1, 120)
    return (schema("set_timer", "Set a timer", {"minutes": ("integer", "Minutes to wait", None)}, ["minutes"]),
            rng.choice([f"Set a timer for {minutes} minutes.", f"Start a timer of {minutes} minutes."]),
            {"minutes": minutes}, rng.choice(["ok", '{"status": "ok"}']), f"The timer is set to {minutes} minutes.")


def message(rng):
    who, text = rng.choice(arithmetic.NAMES + [words.name(rng)]), " ".join(words.any_word(rng) for _ in range(rng.randint(1, 4)))
    return (schema("send_message", "Send a message to a person",
                   {"recipient": ("string", "Name", None), "text": ("string", "The message", None)},
                   ["recipient", "text"]),
            rng.choice([f'Send {who} the message "{text}".', f'Tell {who}: "{text}".']), {"recipient": who, "text": text},
            rng.choice(["sent", '{"status": "sent"}']), f"The message to {who} is sent.")


EVERYDAY = [weather, weather, clock, currency, stock, timer, message]


KEYS = ["color", "count", "name", "size", "code", "place", "day", "level", "title", "speed", "label", "id", "note"]


def text_value(rng, hard):
    if hard and rng.random() < 0.5:  # what looks like another type: only the schema says that it is a text
        return rng.choice([words.digits(rng, 1, 8), words.digits(rng, 2, 6), f"{rng.randint(0, 999)}.{rng.randint(1, 9)}",
                           rng.choice(["true", "false"])])
    return rng.choice([words.any_word(rng), words.name(rng), f"{rng.choice(words.COLORS)} {words.any_word(rng)}",
                       words.digits(rng, 3, 8), f"{words.word(rng)}-{words.digits(rng, 2, 4)}"])


def invented(rng, held_out, shared=None):
    """shared: None, or {"keys", "nouns"} of a hard dialogue, whose functions have parameters and nouns in common, so that
    the right schema must be read and not just any that names the same key."""
    while True:
        verb, noun = rng.choice(words.VERBS), words.any_word(rng)
        if shared and shared["nouns"] and rng.random() < 0.4:
            noun = rng.choice(shared["nouns"])
        if is_held_out("tool", verb, noun, modulus=HELD_OUT) == held_out:
            break
    style = rng.randrange(3)
    name = [f"{verb}_{noun}", verb + noun.capitalize(), f"{noun}_{verb}"][style]
    parameters, arguments, shown = {}, {}, []
    if shared:
        shared["nouns"].append(noun)
    for _ in range(rng.choice([1, 2, 3, 3]) if shared else rng.randint(1, 3)):
        key = rng.choice(shared["keys"] if shared else KEYS) if rng.random() < (0.85 if shared else 0.7) else words.word(rng)
        if key in parameters:
            continue
        kind = rng.choice(["string", "string", "integer", "number", "boolean"])
        if kind == "string":
            value = text_value(rng, bool(shared))
        elif kind == "integer":
            value = rng.randint(0, 99999)
        elif kind == "number":
            value = float(f"{rng.randint(0, 999)}.{rng.randint(1, 9)}")
        else:
            value = rng.random() < 0.5
        parameters[key] = (kind, f"The {key}", None)
        arguments[key] = value
        shown.append((key, value if isinstance(value, str) else json.dumps(value)))
    rng.shuffle(shown)
    with_parts = ", ".join(f"{key} {value}" if rng.random() < 0.5 else f"{key} = {value}" for key, value in shown)
    clause = rng.choice([f"Please {verb} the {noun} with {with_parts}.", f"{verb.capitalize()} the {noun}: {with_parts}.",
                         f"Use {name} with {with_parts}."])
    value = rng.choice([words.word(rng), words.digits(rng, 2, 6), f"{rng.choice(words.COLORS)} {words.any_word(rng)}"])
    result = rng.choice([value, json.dumps({"result": value})])
    required = [key for key in parameters if rng.random() < 0.8]
    return (schema(name, f"{verb.capitalize()} the {noun}", parameters, required), clause, arguments, result,
            f"The result of {name} is {value}.")


def describe(name, arguments):
    parts = ", ".join(f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items())
    return f"I call {name} with {parts}."


def tools(rng, held_out, thinking, num_tools=None, hard=False):
    """A dialogue of two assistant turns: the call or calls, then the sentence made from the results.

    hard: for training, functions that are easily taken for each other.
    """
    num_tools = num_tools or (rng.choice([1, 2, 3, 4, 4]) if hard else rng.randint(1, 4))
    shared = {"keys": rng.sample(KEYS, 5), "nouns": []} if hard else None
    candidates, seen = [], set()
    while len(candidates) < num_tools:
        everyday = rng.random() < (0.2 if hard else 0.45)
        made = rng.choice(EVERYDAY)(rng) if everyday else invented(rng, held_out, shared)
        if made[0]["name"] not in seen:
            seen.add(made[0]["name"])
            candidates.append(made)
    messages = [system("You are a helpful assistant.")] if rng.random() < 0.4 else []
    schemas = [made[0] for made in candidates]
    draw = rng.random()
    if draw < 0.08:  # nothing to call
        other = rng.choice([arithmetic.percent, arithmetic.operation])(rng, held_out, thinking)
        return Document("tools", messages + other.messages, thinking, schemas)
    chosen = [rng.choice(candidates)]
    if draw < 0.26:  # two calls at once: two functions, or one function twice
        if len(candidates) > 1 and rng.random() < 0.6:
            chosen = rng.sample(candidates, 2)
        elif chosen[0][0]["name"] == "get_weather":
            again = weather(rng)
            chosen.append((chosen[0][0],) + again[1:])
    request = " ".join(made[1] for made in chosen)
    calls = [(made[0]["name"], made[2]) for made in chosen]
    messages.append(user(request))
    messages.append(assistant("", reasoning="\n".join(describe(*call) for call in calls), calls=calls))
    messages += [tool(made[3]) for made in chosen]
    messages.append(assistant(" ".join(made[4] for made in chosen), reasoning="I have the result."))
    return Document("tools", messages, thinking, schemas)
