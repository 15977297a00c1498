#!/usr/bin/env python3
"""Packs test and benchmark binaries into one folder that runs on any Linux with a driver and glibc 2.36 or later.

    tools/bundle/device_checks.py --bin_dir "$(bazel info bazel-bin)" --out FOLDER LIST...

A LIST is a text file whose lines name a Bazel target, or //package:name, and its arguments (# begins a comment):
    //kernels/cuda:rows_device_test
    //kernels/cuda:rows_benchmark --only=RmsNorm
FOLDER gets bin/ (stripped), lib/ (every library of theirs but glibc's own and the driver's), one .list file per LIST
and run.sh. There, `FOLDER/run.sh LOGS [SECONDS]` runs them all, each for at most SECONDS (default 120), and writes one
log per LIST and summary.log. A test binary that dies, or whose device is lost to a kernel's fault, is run again test by
test, so that one fault hides nothing. Tested by tests/bundle.
"""

import argparse
import pathlib
import shutil

from make_bundle import fail, needed, run

# What every Linux of this kind has, and what must come from the machine that runs the binaries.
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2"}
DRIVER = {"libcuda.so.1", "libnvidia-ml.so.1"}
RUN = pathlib.Path(__file__).with_name("run_device_checks.sh")


def lines_of(path):
    """[(target, arguments)] of a list."""
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    return [(words[0], words[1:]) for words in lines if words]


def built(bin_dir, target):
    if not target.startswith("//"):
        fail(f"{target} is no target of the form //package:name")
    package, _, name = target[2:].partition(":")
    path = bin_dir / package / (name or pathlib.PurePath(package).name)
    if not path.is_file():
        fail(f"{path} is not built: bazel build {target}")
    return path


def pack(bin_dir, folder, lists):
    """Fills folder; returns how many binaries and libraries it holds."""
    for name in ("bin", "lib"):
        (folder / name).mkdir(parents=True)
    binaries, libraries = {}, {}
    for path in lists:
        commands = []
        for target, arguments in lines_of(path):
            binary = built(bin_dir, target)
            if binaries.setdefault(binary.name, binary) != binary:
                fail(f"{binary} and {binaries[binary.name]} have the same name")
            commands.append(" ".join([binary.name, *arguments]))
        (folder / f"{path.stem}.list").write_text("".join(f"{command}\n" for command in commands))
    for name, binary in sorted(binaries.items()):
        run("strip", "--strip-all", "-o", folder / "bin" / name, binary)
        libraries |= needed(binary)
    for name, path in sorted(libraries.items()):
        if name not in GLIBC | DRIVER:
            shutil.copyfile(path, folder / "lib" / name)
    shutil.copy(RUN, folder / "run.sh")
    return len(binaries), len(list((folder / "lib").iterdir()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin_dir", type=pathlib.Path, required=True, help="where Bazel built: bazel info bazel-bin")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder to make; must not exist")
    parser.add_argument("lists", type=pathlib.Path, nargs="+", metavar="LIST")
    arguments = parser.parse_args()
    if arguments.out.exists():
        fail(f"--out {arguments.out} exists")
    num_binaries, num_libraries = pack(arguments.bin_dir, arguments.out, arguments.lists)
    size = sum(path.stat().st_size for path in arguments.out.rglob("*"))
    print(f"{arguments.out}: {num_binaries} binaries, {num_libraries} libraries, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
