"""Clients that run as programs of their own, each in the environment of its list of packages: NAME.txt in this folder.

    done = run("sglang", ["-m", "sglang.bench_serving", ...], folder)

They see no network but loopback and write nowhere but into `folder`, which is also their home.
"""

import functools
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE.parents[1] / "tools" / "python" / "venv.sh"
SECONDS = 600


@functools.cache
def python(name):
    """The interpreter of the environment, which is made where it is not there yet: that can take minutes."""
    made = subprocess.run([VENV, HERE / f"{name}.txt"], stdout=subprocess.PIPE, text=True)
    assert made.returncode == 0, f"no environment for {name}: {made.stdout}"
    return made.stdout.strip()


def run(name, arguments, folder):
    """What the client printed, both streams in one text. AssertionError with its end where it does not end with 0."""
    surroundings = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    surroundings |= {
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OPENAI_API_KEY": "none",
        "PYTHONUNBUFFERED": "1",
    }
    done = subprocess.run(
        [python(name), *map(str, arguments)],
        cwd=folder,
        env=surroundings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=SECONDS,
    )
    (Path(folder) / "printed.txt").write_text(done.stdout)
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout[-4000:]}"
    return done.stdout
