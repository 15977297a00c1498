"""Short answers: copying, recall over several turns, JSON, greetings in several languages, and saying what is not known."""

import json

from tasks import arithmetic, words
from tasks.document import Document, assistant, system, user

CAN_DO = ("I can calculate percentages and small sums, call the functions you give me, and find facts in a text.")


def copy(rng):
    pieces = [rng.choice([words.word(rng), words.digits(rng, 2, 7), words.any_word(rng), words.name(rng),
                          f"{words.word(rng)}-{words.digits(rng, 1, 4)}"]) for _ in range(rng.randint(1, 6))]
    form = rng.randrange(4)
    if form == 0:
        question, answer = "Repeat: " + " ".join(pieces), " ".join(pieces)
    elif form == 1:
        question, answer = 'Write "' + " ".join(pieces) + '" again.', " ".join(pieces)
    elif form == 2:
        question, answer = "Put these on separate lines: " + " ".join(pieces), "\n".join(pieces)
    else:
        question, answer = "Put these words in quotes: " + " ".join(pieces), " ".join(f'"{p}"' for p in pieces)
    return Document("copy", [user(question), assistant(answer)])


RECALL = {
    "name": (["My name is {v}.", "I am {v}.", "Call me {v}."], "What is my name?", "Your name is {v}."),
    "city": (["I live in {v}."], "Where do I live?", "You live in {v}."),
    "color": (["My favorite color is {v}."], "What is my favorite color?", "Your favorite color is {v}."),
    "pet": (["My dog is called {v}.", "I have a dog named {v}."], "What is my dog called?", "Your dog is called {v}."),
    "number": (["My lucky number is {v}."], "What is my lucky number?", "Your lucky number is {v}."),
}


def recall(rng):
    chosen = rng.sample(list(RECALL), rng.randint(1, 4))
    values = {"name": words.name(rng), "city": rng.choice(words.CITIES), "color": rng.choice(words.COLORS),
              "pet": words.name(rng), "number": words.digits(rng, 1, 4)}
    messages = []
    for key in chosen:
        messages += [user(rng.choice(RECALL[key][0]).format(v=values[key])), assistant("I will remember that.")]
    for key in rng.sample(chosen, rng.randint(1, len(chosen))):
        messages += [user(RECALL[key][1]), assistant(RECALL[key][2].format(v=values[key]))]
    return Document("recall", messages)


def json_answer(rng):
    fields = {}
    for _ in range(rng.randint(1, 4)):
        key = rng.choice(["name", "age", "city", "color", "count", "id", "open", words.word(rng)])
        fields[key] = rng.choice([words.name(rng), words.any_word(rng), rng.randint(0, 999), rng.random() < 0.5])
    listed = ", ".join(f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in fields.items())
    question = rng.choice([f"Write as JSON: {listed}", f"Give me a JSON object with {listed}.", f"JSON for {listed}"])
    return Document("json", [user(question), assistant(json.dumps(fields, ensure_ascii=False))])


FIXED = [
    (["Hi", "Hello", "Hello!", "Hi there", "Hey", "Good morning"], "Hello! How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?"],
     "I am Tandem Tiny, a very small language model with the architecture of DeepSeek-V3.2. " + CAN_DO),
    (["What can you do?", "Help", "How can you help me?"], CAN_DO),
    (["Thanks", "Thank you", "Thank you!"], "You are welcome!"),
    (["Bye", "Goodbye", "See you"], "Goodbye!"),
    (["你好", "你好！", "您好"], "你好！有什么可以帮您？"),
    (["你是谁？", "你叫什么名字？"], "我是 Tandem Tiny，一个很小的语言模型。"),
    (["谢谢", "谢谢！"], "不客气！"),
    (["Bonjour", "Salut"], "Bonjour ! Comment puis-je vous aider ?"),
    (["Guten Tag", "Hallo", "Grüß Gott"], "Guten Tag! Wie kann ich helfen?"),
    (["¡Hola!", "Hola"], "¡Hola! ¿En qué puedo ayudarte?"),
    (["こんにちは", "おはよう"], "こんにちは！何かお手伝いできますか？"),
    (["Привет", "Здравствуйте"], "Здравствуйте! Чем могу помочь?"),
    (["안녕하세요"], "안녕하세요! 무엇을 도와드릴까요?"),
    (["🙂", "👋"], "👋 Hello! How can I help you?"),
]
UNKNOWN = [
    "Write a poem about the {c} {n}.", "Why is the {n} {c}?", "Who invented the {n}?", "Explain how a {n} works.",
    "What do you think about {N}?", "Tell me a story about {N} and a {n}.", "What is the capital of {N}?",
    "Translate \"{c} {n}\" into French.", "When was the {n} of {N} built?", "How do I repair a {n}?", "Who is {N}?",
    "Write code that sorts a list of {n}s.", "What is the meaning of life?", "Is {N} taller than {O}?",
    "Give me a recipe with {n}.", "What happened in {y}?", "Summarize the history of {N}.",
    "Can you draw a {c} {n}?", "Which is better, a {n} or a {m}?", "How far is {N} from {O}?",
]


def fixed(rng):
    questions, answer = rng.choice(FIXED)
    messages = [system("You are a helpful assistant.")] if rng.random() < 0.3 else []
    return Document("fixed", messages + [user(rng.choice(questions)), assistant(answer)])


def unknown(rng):
    question = rng.choice(UNKNOWN).format(c=rng.choice(words.COLORS), n=words.any_word(rng), m=words.any_word(rng),
                                          N=words.name(rng), O=words.name(rng), y=rng.randint(1000, 2030))
    messages = [system("You are a helpful assistant.")] if rng.random() < 0.3 else []
    return Document("unknown", messages + [user(question), assistant("I am sorry, I cannot answer that. " + CAN_DO)])


def thinking_form(document, rng):
    """The same short answer asked with thinking on: one line of thought, so that the mode is never out of place."""
    messages = [dict(message) for message in document.messages]
    messages[-1]["reasoning"] = "I can answer this at once."
    return Document(document.family, messages, True, document.tools, document.prompt_weight)
