"""The next token from logits: Philox 4x32-10, Gumbel noise of a candidate, penalties, the kept set, log-probabilities.

noise of token = -log(-log u), u = ((w0 2^32 + w1) >> 12 + 1/2) 2^-52, w = philox(key = seed; counter = token, position
low, position high, choice). token = argmax over the kept set of adjusted logit / temperature + noise.
"""

import numpy as np

_MASK = np.uint64(0xFFFFFFFF)


def philox4x32(seed, counter):
    """seed: 64-bit integer; counter: [..., 4] of 32-bit integers -> uint64 [..., 4] below 2^32. Ten rounds."""
    c0, c1, c2, c3 = (np.asarray(counter)[..., i].astype(np.uint64) for i in range(4))
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        high0, high1 = p0 >> np.uint64(32), p1 >> np.uint64(32)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(keys[0]), p1 & _MASK, high0 ^ c3 ^ np.uint64(keys[1]), p0 & _MASK
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    return np.stack([c0, c1, c2, c3], axis=-1)


def gumbel(seed, choice, position, tokens):
    """float64 of tokens' shape."""
    tokens = np.asarray(tokens)
    fixed = [position & 0xFFFFFFFF, position >> 32, choice]
    counter = np.stack([tokens.astype(np.uint64)] + [np.full(tokens.shape, v, np.uint64) for v in fixed], axis=-1)
    w = philox4x32(seed, counter)
    bits = ((w[..., 0] << np.uint64(32)) | w[..., 1]) >> np.uint64(12)
    u = (bits.astype(np.float64) + 0.5) * 2.0**-52
    return -np.log(-np.log(u))


def adjusted(logits, prompt, generated, repetition=1.0, frequency=0.0, presence=0.0, bias=(), masked=()):
    """The logits that are drawn from. bias: (token, value) pairs, -100 bans; masked: tokens that may not be drawn."""
    result = np.where(np.isnan(logits), -np.inf, np.asarray(logits, np.float64))
    for token in {*prompt, *generated}:
        result[token] = result[token] / repetition if result[token] > 0 else result[token] * repetition
    for token in set(generated):
        result[token] -= frequency * list(generated).count(token)
        result[token] -= presence
    for token, value in bias:
        result[token] += -np.inf if value <= -100 else value
    result[list(masked)] = -np.inf
    return result


def kept_set(logits, temperature, top_k, top_p, min_p=0.0):
    """(ids in order of probability, their probabilities before renormalisation, distance of the cuts to a tie).

    The top_k highest logits (0: all); of these the shortest prefix whose mass is at least top_p of theirs; of these the
    ones at least min_p times as probable as the first. Logits of -inf are never kept.
    """
    order = np.argsort(-logits, kind="stable")
    order = order[logits[order] > -np.inf]
    if top_k:
        order = order[:top_k]
    p = np.exp((logits[order] - logits[order[0]]) / temperature)
    count = len(order)
    margin = np.inf
    if top_p < 1:
        mass = np.cumsum(p / p.sum())
        count = int(np.argmax(mass >= top_p)) + 1
        margin = float(np.abs(mass - top_p).min())
    if min_p > 0:
        count = min(count, int((p >= min_p).sum()))
        margin = min(margin, float(np.abs(p - min_p).min()) if min_p < 1 else np.inf)
    return order[:count], (p / p.sum())[:count], margin


def sample(logits, temperature, top_k, top_p, seed, choice, position, min_p=0.0):
    """(token, gap of the two best scores) from adjusted logits."""
    logits = np.where(np.isnan(logits), -np.inf, logits)
    if temperature == 0:
        return int(np.argmax(logits)), float(np.diff(np.sort(logits)[-2:])[0])
    ids, _, _ = kept_set(logits, temperature, top_k, top_p, min_p)
    score = logits[ids] / temperature + gumbel(seed, choice, position, ids)
    best = int(np.argmax(score))
    gap = np.diff(np.sort(score)[-2:])[0] if len(score) > 1 else np.inf
    return int(ids[best]), float(gap)


def logprobs(logits):
    """Log softmax of the logits as the model gave them."""
    logits = np.where(np.isnan(logits), -np.inf, logits)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def top_logprobs(logits, count):
    """(ids, log-probabilities) of the likeliest tokens, the lower id first among equals; none of probability 0."""
    values = logprobs(logits)
    order = np.argsort(-values, kind="stable")[:count]
    order = order[values[order] > -np.inf]
    return order, values[order]
