"""SGLang's commands in a piece of shell: what is started, with which flags, in which environment.

Understood: lines continued by a backslash, comments, quotes, NAME=value and export NAME=value, $NAME and ${NAME},
arguments collected by NAME=$(echo serve ...), and what follows a command behind | or 2>&1.
"""

import re
import shlex
from dataclasses import dataclass, field

SERVE, ROUTER = "serve", "router"
# Programs that only ask a server: they run against our router as they are.
CLIENT_MODULES = re.compile(r"sglang\.(bench_serving|test\.\w+)$|(^|/)bench_\w+\.py$")


class Refusal(Exception):
    """Something that has no translation, in words for who typed it."""


@dataclass
class Command:
    kind: str  # SERVE or ROUTER
    arguments: list
    environment: dict = field(default_factory=dict)


_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.DOTALL)


def _words(text):
    lexer = shlex.shlex(text.replace("\\\n", " "), posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        return list(lexer)
    except ValueError as error:
        raise Refusal(f"this is no shell command: {error}") from None


def _expand(words, variables):
    """Words with what is known of $NAME in its place; a word that is one known variable may become several."""
    for word in words:
        whole = _VARIABLE.fullmatch(word)
        if whole and (whole[1] or whole[2]) in variables:
            yield from shlex.split(variables[whole[1] or whole[2]])
        else:
            yield _VARIABLE.sub(lambda m: variables.get(m[1] or m[2], m[0]), word)


def _start_of(words, at):
    """(kind, number of words) of the command that starts at this word; kind None: a client, or nothing."""
    if words[at] == "sglang" and words[at + 1 : at + 2] == ["serve"]:
        return SERVE, 2
    if re.fullmatch(r"python3?", words[at]):
        module = words[at + 2] if words[at + 1 : at + 2] == ["-m"] else words[at + 1] if at + 1 < len(words) else ""
        if module == "sglang.launch_server":
            return SERVE, 3
        if module == "sglang_router.launch_router":
            return ROUTER, 3
        if CLIENT_MODULES.search(module):
            return None, 0
        raise Refusal(f"python runs {module or 'nothing'}: neither a server nor a router of SGLang's, nor a client of one")
    return None, 0


def read(text, definitions=()):
    """All servers and routers that the text starts. definitions: (name, value) of variables it leaves open.

    A variable without a value stays as it is: whoever needs it says so.
    """
    words = _words(text)
    variables, environment, commands = dict(definitions), {}, []
    collecting, exports = None, False
    at = 0
    while at < len(words):
        word = words[at]
        assigned = _ASSIGNMENT.fullmatch(word)
        if collecting is None and word == "export":
            exports = True
            at += 1
            continue
        if collecting is None and assigned:
            name, value = assigned.groups()
            if value == "$(echo" and words[at + 1 : at + 2] == ["serve"]:
                collecting = Command(SERVE, [], environment)
                at += 2
                continue
            if exports or name.startswith("SGLANG_"):
                environment[name] = value
            else:
                variables.setdefault(name, value)
            exports = False
            at += 1
            continue
        if collecting is None:
            kind, length = _start_of(words, at)
            if kind is None:
                # Up to the next start: a client, tee, cd, the use of collected arguments.
                at += 1
                continue
            collecting = Command(kind, [], environment)
            at += length
            continue
        if word in (")", "|", "2>&1", "&", ";", "&&"):
            commands.append(collecting)
            collecting = None
            at += 1
            continue
        if re.fullmatch(r"sglang|python3?|export", word):  # the next command, on a line of its own
            commands.append(collecting)
            collecting = None
            continue
        collecting.arguments.append(word)
        at += 1
    if collecting is not None:
        commands.append(collecting)
    for command in commands:
        command.arguments = list(_expand(command.arguments, variables))
    return commands


def is_client(text):
    """Whether the text runs a client and starts neither a server nor a router."""
    words = _words(text)
    return any(CLIENT_MODULES.search(word) for word in words) and not read(text)


def parse(command, rows):
    """-> {flag's first name: value, True, or list of values of a flag that may come again}."""
    values, arguments = {}, list(command.arguments)
    known = {name: row for row in rows for name in row.names}
    while arguments:
        flag, equals, given = arguments.pop(0).partition("=")
        if flag not in known:
            what = "the router" if command.kind == ROUTER else "sglang serve"
            raise Refusal(f"unknown flag {flag} of {what}: --list shows those that are known")
        row = known[flag]
        if row.takes == "":
            if equals:
                raise Refusal(f"{flag} takes no value, {given} was given")
            values[row.name] = True
            continue
        if not equals:
            if not arguments or arguments[0].startswith("--"):
                raise Refusal(f"{flag} needs a value")
            given = arguments.pop(0)
        if command.kind == ROUTER and row.name in ("--prefill", "--decode"):
            if row.takes == "values" and arguments and not arguments[0].startswith("--"):
                arguments.pop(0)  # the bootstrap port
            values.setdefault(row.name, []).append(given)
        elif row.name in values and values[row.name] != given:
            raise Refusal(f"{row.name} is given twice, as {values[row.name]} and as {given}")
        else:
            values[row.name] = given
    return values
