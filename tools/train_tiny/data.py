"""An endless stream of packed rows, made by forked CPU processes.

Documents are drawn from tasks.mixture, rendered, tokenised and packed best-fit into rows of `length` tokens; no document is
ever repeated or cut. A token's loss weight is 1 where the assistant wrote it, else the document's prompt weight.
Fork the workers before torch is imported: a forked CUDA context is none.
"""

import multiprocessing
import random

import numpy as np
from tokenizers import Tokenizer

import chat
from tasks import mixture

DOCUMENTS_MAX = 128  # of one row
POOL = 96  # documents waiting to be packed
DRAWS = ["draw", "draw_long", "draw_tools", "draw_types"]


class Encoder:
    def __init__(self, tokenizer_file, prompt_factor=1.0):
        """prompt_factor: on the documents' prompt weights."""
        self.prompt_factor = prompt_factor
        self.tokenizer = Tokenizer.from_file(tokenizer_file)
        self.eos, self.think, self.end_think = (
            self.tokenizer.token_to_id(token) for token in (chat.EOS, chat.THINK, chat.END_THINK))

    def encode(self, document):
        """(ids, weights) of one document; weights[i] is that of predicting ids[i]."""
        text = chat.render(document.messages, document.thinking, document.tools)
        ids = np.array(self.tokenizer.encode(text, add_special_tokens=False).ids, np.int32)
        weights = np.full(len(ids), self.prompt_factor * document.prompt_weight, np.float32)
        speaking = False
        for i, token in enumerate(ids):
            if speaking:
                weights[i] = 1
                speaking = token != self.eos
            elif token in (self.think, self.end_think):
                speaking = True
        return ids, weights


def pack(pool, length):
    """Takes documents out of `pool` (sorted by length) until no more fit."""
    row, room = [], length
    while len(row) < DOCUMENTS_MAX:
        best = None
        for i in range(len(pool) - 1, -1, -1):
            if len(pool[i][0]) <= room:
                best = i
                break
        if best is None:
            return row
        row.append(pool.pop(best))
        room -= len(row[-1][0])
    return row


def rows(encoder, rng, length, draw):
    """Yields (ids, weights, positions, document) of [length]; padding has document -1 and weight 0. draw: rng -> Document."""
    pool = []
    while True:
        while len(pool) < POOL:
            encoded = encoder.encode(draw(rng))
            if len(encoded[0]) <= length:
                pool.append(encoded)
        pool.sort(key=lambda document: len(document[0]))
        row = pack(pool, length)
        rng.shuffle(row)
        yield lay_out(row, length)


def lay_out(row, length):
    ids, weights = np.zeros(length, np.int32), np.zeros(length, np.float32)
    positions, document = np.zeros(length, np.int32), np.full(length, -1, np.int32)
    begin = 0
    for number, (doc_ids, doc_weights) in enumerate(row):
        end = begin + len(doc_ids)
        ids[begin:end], weights[begin:end] = doc_ids, doc_weights
        positions[begin:end], document[begin:end] = np.arange(end - begin), number
        begin = end
    return ids, weights, positions, document


class RowQueue:
    """Rows from `num_workers` processes. set_stage changes what they make from the next row on."""

    def __init__(self, tokenizer_file, num_workers, seed, length, draw, retrieval_tokens_max, prompt_factor):
        """draw: the name of a function of tasks.mixture."""
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(maxsize=64)
        self.length = context.Value("i", length)
        self.draw = context.Value("i", DRAWS.index(draw))
        self.retrieval = context.Value("i", retrieval_tokens_max)
        self.workers = [context.Process(target=self._work, args=(tokenizer_file, seed + 2 * i, prompt_factor),
                                        daemon=True)
                        for i in range(num_workers)]
        for worker in self.workers:
            worker.start()

    def set_stage(self, length, draw, retrieval_tokens_max):
        self.length.value, self.draw.value, self.retrieval.value = length, DRAWS.index(draw), retrieval_tokens_max

    def _work(self, tokenizer_file, seed, prompt_factor):
        encoder, rng = Encoder(tokenizer_file, prompt_factor), random.Random(seed)
        while True:
            length, number = self.length.value, self.draw.value
            draw = getattr(mixture, DRAWS[number])
            if DRAWS[number] == "draw":
                draw = lambda rng: mixture.draw(rng, self.retrieval.value)  # noqa: E731
            for row in rows(encoder, rng, length, draw):
                self.queue.put(row)
                if (self.length.value, self.draw.value) != (length, number):
                    break

    def take(self, num_rows, length):
        """num_rows rows of `length`; rows of an earlier stage are dropped."""
        taken = []
        while len(taken) < num_rows:
            row = self.queue.get(timeout=120)
            if len(row[0]) == length:
                taken.append(row)
        return [np.stack(part) for part in zip(*taken)]

    def close(self):
        for worker in self.workers:
            worker.terminate()
