#!/usr/bin/env python3
"""SGLang's command lines in our terms.

usage: translate_args.py [--define NAME=VALUE ...] [--model_path FOLDER] [--ranks_max N] [--out FOLDER] [COMMAND ...]
       translate_args.py --hardware h200 [--gpus 8] [--variant v3.2] [--strategy tp,dp,mtp] [--thinking] [...]
       translate_args.py --list

COMMAND is what one would type (sglang serve ..., python -m sglang.launch_server ..., python -m
sglang_router.launch_router ...), as words or as one text; without it the command is read from stdin, also a script with
variables and several commands. Printed is the YAML of each of our services, with a note for whatever is not the same,
and how to start them. --define gives variables their values; --model_path says where the checkpoint is; --ranks_max
scales workers down; --out writes the files. Instead of a command: hardware and aims, for which the flags are chosen.

Unknown flags, and what cannot be served, end it with exit code 2 and a line that says why.
"""

import argparse
import pathlib
import shlex
import sys

import yaml

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.translate_args import commands, recommend, rows, translate

ORDER = (translate.PREFILL, translate.DECODE, translate.GATEWAY)


def texts_of(translation):
    """{service: its YAML, notes as comments on top of the first}."""
    texts = {}
    for service in ORDER:
        if service not in translation.configs:
            continue
        texts[service] = yaml.safe_dump(translation.configs[service], sort_keys=False)
    return texts


def print_translation(translation, folder=None):
    for note in translation.notes:
        print(f"# note: {note}")
    texts = texts_of(translation)
    for service, text in texts.items():
        print(f"\n# {service}.yaml\n{text}", end="")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{service}.yaml").write_text(text)
    print("\n# to start it:")
    for service in texts:
        print(f"{service} --config {(folder or pathlib.Path()) / f'{service}.yaml'}")


def _definition(text):
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return name, value


def _arguments(argv):
    parser = argparse.ArgumentParser(usage=__doc__.partition("usage: ")[2], add_help=True)
    parser.add_argument("--define", type=_definition, action="append", default=[])
    parser.add_argument("--model_path")
    parser.add_argument("--ranks_max", type=int)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--hardware")
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--variant", default="v3.2")
    parser.add_argument("--strategy", default="tp")
    parser.add_argument("--thinking", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def _text_of(arguments):
    words = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not words:
        return sys.stdin.read()
    return words[0] if len(words) == 1 else shlex.join(words)


def main(argv):
    arguments = _arguments(argv)
    if arguments.list:
        print(rows.markdown(), end="")
        return 0
    try:
        if arguments.hardware is not None:
            if arguments.command:
                raise commands.Refusal("--hardware and a command: one says what the other does")
            chosen = recommend.recommend(arguments.hardware, arguments.gpus, arguments.variant,
                                         arguments.strategy.split(","), arguments.thinking)
            print(f"# SGLang: sglang serve {shlex.join(chosen.command.arguments)}")
            print(f"# overlay: {chosen.overlay} (its settings take the place of the ports and addresses below)")
            for note in chosen.notes:
                print(f"# note: {note}")
            found = [chosen.command]
        else:
            text = _text_of(arguments)
            found = commands.read(text, arguments.define)
            if not found:
                if commands.is_client(text):
                    print("# a client: it asks our router as it asks SGLang's server (docs/clients.md); nothing to translate")
                    return 0
                raise commands.Refusal("no command of SGLang's: sglang serve, sglang.launch_server or "
                                       "sglang_router.launch_router is wanted")
        for place, command in enumerate(found):
            translation = translate.translate(command, arguments.model_path, arguments.ranks_max)
            folder = arguments.out
            if folder is not None and len(found) > 1:
                folder = folder / str(place)
            print_translation(translation, folder)
    except commands.Refusal as refusal:
        print(f"translate_args: {refusal}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
