"""Writes tests/golden: `python -m tools.reference.make_goldens ops | model --checkpoint FOLDER --name NAME`.

A given NumPy and the same checkpoint give the same files; README.md describes them.
"""

import argparse
import json
import zlib
from pathlib import Path

import numpy as np

from tools.reference import op_goldens, safetensors_io

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"


def write_manifest(folder, content):
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=True)
    (folder / "manifest.json").write_text(text + "\n")


def make_ops(folder):
    """Each op draws from its own generator, so that adding one changes no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"numpy": np.__version__, "ops": {}}
    for name, build in op_goldens.OPS.items():
        op = build(np.random.default_rng(zlib.crc32(name.encode())))
        tensors = {f"{case}.{t}": v for case, named in op.cases.items() for t, v in named.items()}
        safetensors_io.write(folder / f"{name}.safetensors", tensors)
        manifest["ops"][name] = {
            "cases": {case: op.parameters.get(case, {}) for case in op.cases},
            "outputs": op.outputs,
        }
    write_manifest(folder, manifest)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=GOLDEN, help="folder of the goldens (default: tests/golden)")
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("ops")
    model = kinds.add_parser("model")
    model.add_argument("--checkpoint", type=Path, required=True)
    model.add_argument("--name", required=True, help="one of model_goldens.GOLDENS")
    arguments = parser.parse_args()
    if arguments.kind == "ops":
        make_ops(arguments.out / "ops")
    else:
        from tools.reference import model_goldens

        model_goldens.make(arguments.out / "model", arguments.checkpoint, arguments.name)


if __name__ == "__main__":
    main()
