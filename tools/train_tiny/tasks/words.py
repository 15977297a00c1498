"""Invented words and everyday lists that the tasks draw from."""

ONSETS = ["b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "l", "m", "n", "p", "pl", "qu", "r", "s",
          "sh", "st", "t", "tr", "v", "w", "z"]
VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "io", "ou"]
CODAS = ["", "", "", "l", "m", "n", "r", "s", "t", "x", "nd", "rk"]

CITIES = ["Beijing", "Paris", "London", "Tokyo", "Berlin", "Madrid", "Rome", "Oslo", "Cairo", "Lima", "Delhi", "Seoul",
          "Boston", "Chicago", "Dublin", "Vienna", "Prague", "Lisbon", "Athens", "Warsaw", "Sydney", "Toronto", "Nairobi",
          "Shanghai", "Hangzhou", "Shenzhen", "New York", "San Francisco", "Hong Kong", "Mexico City", "São Paulo",
          "Zürich", "München", "北京", "上海", "東京"]
COLORS = ["red", "blue", "green", "yellow", "black", "white", "purple", "orange", "silver", "golden", "brown", "pink"]
NOUNS = ["lamp", "door", "garden", "river", "tower", "bridge", "table", "window", "engine", "forest", "market", "station",
         "harbor", "castle", "library", "museum", "kitchen", "valley", "island", "mountain", "rocket", "violin", "camera",
         "barrel", "candle", "mirror", "ladder", "basket", "anchor", "hammer"]
VERBS = ["get", "find", "create", "update", "delete", "list", "send", "open", "close", "start", "stop", "check", "book",
         "order", "move", "copy", "count", "lock", "rename", "measure", "schedule", "cancel", "repair", "paint"]


def word(rng, syllables=None):
    return "".join(rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
                   for _ in range(syllables or rng.randint(2, 3)))


def any_word(rng):
    """An everyday word or an invented one."""
    return rng.choice(NOUNS) if rng.random() < 0.5 else word(rng)


def digits(rng, low, high):
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(low, high)))


def name(rng):
    return word(rng).capitalize()
