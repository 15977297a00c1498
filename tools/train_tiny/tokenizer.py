"""Trains the byte-level BPE of the tiny checkpoint and writes tokenizer.json in DeepSeek's structure.

usage: python tokenizer.py OUT.json

A word must be spelled alike wherever it stands (after a space, a quote, at a line's start), or a small model cannot copy
words it has never seen. So merges are learned with spaces, digits and punctuation apart, and whole everyday words then
get one extra merge with the space before them. The file ships DeepSeek's own splits: numbers of several digits are one
piece there, but no merge of digits exists, so every digit is one token.
"""

import collections
import json
import random
import re
import sys

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import chat
from tasks import mixture
from tokenizer_size import VOCAB_SIZE


NUM_DOCUMENTS = 12000
SPACE = "Ġ"

SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def corpus():
    rng = random.Random(2)
    for _ in range(NUM_DOCUMENTS):
        document = mixture.draw(rng, 300)
        yield chat.render(document.messages, document.thinking, document.tools)


def train():
    texts = [re.sub("|".join(map(re.escape, chat.SPECIAL_TOKENS + chat.ADDED_TOKENS)), "\n", text) for text in corpus()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s|\p{N}|[^\s\p{L}\p{M}\p{N}]"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    num_merges = VOCAB_SIZE - 256 - len(chat.SPECIAL_TOKENS) - len(chat.ADDED_TOKENS)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=256 + num_merges, min_frequency=40, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    learned = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in learned["merges"]]

    # Whole everyday words with the space before them.
    counts = collections.Counter(word for text in texts for word in re.findall(r" ([^\W\d_]{2,})", text))
    pieces = {a + b for a, b in merges}
    merges += [(SPACE, word) for word, count in counts.most_common() if word.isascii() and word in pieces and count >= 100]
    # Runs of punctuation, which markup and JSON are full of; they never hold a letter, so no word's spelling changes.
    runs = collections.Counter(run for text in texts for run in re.findall(r" ?[!-/:-@\[-`{-~]{2,}\n?| [!-/:-@\[-`{-~]", text))
    pieces = {a + b for a, b in merges}
    for run, count in runs.most_common():
        symbols = run.replace(" ", SPACE).replace("\n", "Ċ")
        for end in range(2, len(symbols) + 1):
            if count >= 200 and len(merges) < num_merges and symbols[:end] not in pieces:
                merges.append((symbols[:end - 1], symbols[end - 1]))
                pieces.add(symbols[:end])
    if len(merges) > num_merges:
        raise ValueError(f"{len(merges)} merges do not fit a vocabulary of {VOCAB_SIZE}")
    return merges


def tokenizer_json(merges):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {}
    for symbol in chat.SPECIAL_TOKENS + alphabet + [a + b for a, b in merges]:
        vocab.setdefault(symbol, len(vocab))
    added = [(token, vocab[token], True) for token in chat.SPECIAL_TOKENS]
    first = VOCAB_SIZE - len(chat.ADDED_TOKENS)
    placeholders = [(f"<｜place▁holder▁no▁{i}｜>", len(vocab) + i, True) for i in range(first - len(vocab))]
    added += placeholders + [(token, first + i, False) for i, token in enumerate(chat.ADDED_TOKENS)]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": token_id, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": special} for token, token_id, special in added],
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False} for split in SPLITS
        ] + [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab,
                  "merges": [f"{a} {b}" for a, b in merges]},
    }


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(tokenizer_json(train()), file, ensure_ascii=False, indent=1)
        file.write("\n")
