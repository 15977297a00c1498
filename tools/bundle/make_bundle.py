#!/usr/bin/env python3
"""Makes one archive of the three services that runs on a bare Debian 12, or on any Linux with its C++ library or later.

    tools/bundle/make_bundle.py --bin_dir "$(bazel info bazel-bin)" --out tandem.tar.gz [--checkpoint FOLDER]

Inside, below tandem/: bin/ (the services, stripped), lib/ (every library of theirs that a bare Debian 12 lacks, and
UCX's modules), doc/ (the libraries' licences, packed), sbom.spdx.json, and checkpoints/NAME with --checkpoint. The services find
lib/ beside themselves by their run path; nothing is installed, and the archive may be unpacked anywhere. The same input
gives the same bytes. Tested by tests/bundle.
"""

import argparse
import gzip
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import sbom

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVICES = ("router", "prefill_worker", "decode_worker")
# In every Debian 12, debian:12-slim included (dpkg and apt stand on them). Everything else travels along.
BASE_PACKAGES = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}
# What UCX loads by itself; those for InfiniBand would need libraries of the host's drivers, and no lane uses them yet.
UCX_MODULES = ("libuct_cma.so.0",)


def fail(words):
    sys.exit(f"make_bundle.py: {words}")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def needed(path):
    """name -> file of the libraries that the loader would load for an ELF file."""
    libraries = {}
    for line in run("ldd", path).splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if not arrow:
            continue  # the kernel's page and the loader itself
        if rest.startswith("not found"):
            fail(f"{path} needs {name}, which this machine does not have")
        libraries[name] = pathlib.Path(rest.split(" (")[0]).resolve()
    return libraries


def owners(paths):
    """path -> the Debian package that owns it. dpkg knows some files by their names without /usr."""
    names = [name for path in paths for name in (str(path), str(path).removeprefix("/usr"))]
    # Its status is 1 where it does not know one of the two names.
    listed = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True).stdout
    packages = {}
    for line in listed.splitlines():
        package, _, name = line.rpartition(": ")
        packages[name] = package.split(":")[0]
    found = {path: packages.get(str(path)) or packages.get(str(path).removeprefix("/usr")) for path in paths}
    for path, package in found.items():
        if package is None:
            fail(f"{path} belongs to no Debian package: the bundle can say nothing of its version or licence")
    return found


def collect(bin_dir, folder):
    """Fills folder with bin/, lib/ and doc/. Returns {path in the bundle: Debian package, or None for our own}."""
    files = {}
    (folder / "bin").mkdir()
    (folder / "lib" / "ucx").mkdir(parents=True)
    libraries = {}
    for service in SERVICES:
        built = bin_dir / service / service
        if not built.exists():
            fail(f"{built} is not built: bazel build //{service}")
        libraries |= needed(built)
        run("strip", "--strip-all", "-o", folder / "bin" / service, built)
        files[f"bin/{service}"] = None
    ucx = next(path for name, path in libraries.items() if name.startswith("libucs.so")).parent / "ucx"
    modules = {module: (ucx / module).resolve() for module in UCX_MODULES}
    for module in modules.values():
        libraries |= needed(module)
    package_of = owners([*libraries.values(), *modules.values()])
    targets = {f"lib/{name}": path for name, path in libraries.items() if package_of[path] not in BASE_PACKAGES}
    targets |= {f"lib/ucx/{name}": path for name, path in modules.items()}
    for target, path in sorted(targets.items()):
        shutil.copyfile(path, folder / target)
        files[target] = package_of[path]
    for package in sorted({p for p in files.values() if p is not None}):
        (folder / "doc" / package).mkdir(parents=True)
        licence = pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes()
        (folder / "doc" / package / "copyright.gz").write_bytes(gzip.compress(licence, 9, mtime=0))
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    return files


def archive(folder, out, epoch):
    """folder as tandem/ in out: sorted, without this machine's users and times."""

    def plain(info):
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = epoch
        info.mode = 0o755 if info.isdir() or info.name.startswith("tandem/bin/") else 0o644
        return info

    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in [folder, *sorted(folder.rglob("*"))]:
                tar.add(path, "tandem" / path.relative_to(folder), recursive=False, filter=plain)


def size_of(folder, *leave_out):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and not set(p.parts) & set(leave_out))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin_dir", type=pathlib.Path, required=True, help="where Bazel built: bazel info bazel-bin")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the archive to write, .tar.gz")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="a checkpoint folder that goes along")
    parser.add_argument("--version", default="0.1.0")
    parser.add_argument("--epoch", type=int, default=0, help="the time that all files get, in seconds since 1970")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "tandem"
        folder.mkdir()
        files = collect(arguments.bin_dir, folder)
        (folder / "sbom.spdx.json").write_text(sbom.document(folder, files, arguments.version, arguments.epoch))
        plain_size = size_of(folder)
        if arguments.checkpoint is not None:
            if not (arguments.checkpoint / "config.json").exists():
                fail(f"--checkpoint {arguments.checkpoint} holds no config.json")
            target = folder / "checkpoints" / arguments.checkpoint.resolve().name
            shutil.copytree(arguments.checkpoint, target, copy_function=shutil.copyfile)
        archive(folder, arguments.out, arguments.epoch)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB packed; "
          f"{plain_size / 1e6:.1f} MB unpacked without a checkpoint, {len(files)} programs and libraries")


if __name__ == "__main__":
    main()
