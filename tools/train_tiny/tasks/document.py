"""One training document: a dialogue whose assistant turns are a deterministic function of what came before."""

import dataclasses
import hashlib


@dataclasses.dataclass
class Document:
    family: str
    messages: list  # as chat.render takes them; ends with an assistant turn
    thinking: bool = False
    tools: list | None = None
    prompt_weight: float = 0.03  # loss weight of tokens that are not the assistant's; 0 for unpredictable filler


def is_held_out(*key, modulus):
    """True for one in `modulus` keys, the same on every machine: these are for evaluation alone."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % modulus == 0


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def assistant(content, reasoning=None, calls=None):
    return {"role": "assistant", "content": content, "reasoning": reasoning, "calls": calls}


def tool(content):
    return {"role": "tool", "content": content}
