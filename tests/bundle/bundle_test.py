"""The bundle runs where nothing is installed, is small, says what it is made of, and is made the same way twice."""

import gzip
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import make_bundle
import sbom
from tests.e2e.cluster import ROOT, bin_folder

PACKED_BYTES_MAX = 20_000_000  # without a checkpoint
UNPACKED_BYTES_MAX = 40_000_000  # 36.6 MB, 8 of them gRPC with TLS, 4 device kernels (compressed): a leap is a mistake
IMAGES = ROOT / "deploy" / "images"


def make(out, *arguments):
    command = [sys.executable, ROOT / "tools/bundle/make_bundle.py", f"--bin_dir={bin_folder()}", f"--out={out}", *arguments]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    print(made.stdout)
    return out


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return make(tmp_path_factory.mktemp("bundle") / "tandem.tar.gz", "--version=7.8.9", "--epoch=86400")


@pytest.fixture(scope="module")
def bundle(packed):
    """The folder that it unpacks to."""
    with tarfile.open(packed) as tar:
        tar.extractall(packed.parent / "unpacked")
    return packed.parent / "unpacked" / "tandem"


def elf_files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF")


def test_it_is_small_and_stripped(packed, bundle):
    assert packed.stat().st_size <= PACKED_BYTES_MAX
    assert sum(p.stat().st_size for p in bundle.rglob("*") if p.is_file()) <= UNPACKED_BYTES_MAX
    assert not {p.name for p in bundle.rglob("libcud*")} | {p.name for p in bundle.rglob("libnccl*")}, "found at start, or static"
    for path in elf_files(bundle):
        sections = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
        assert ".symtab" not in sections and ".debug_" not in sections, path


def test_no_file_of_it_needs_a_library_that_is_neither_in_it_nor_in_a_bare_debian(bundle):
    carried = {p.name for p in elf_files(bundle)}
    base = set()
    for package in make_bundle.BASE_PACKAGES:
        listed = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True, check=True).stdout
        base |= {line.rpartition("/")[2] for line in listed.splitlines()}
    for path in elf_files(bundle):
        dynamic = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)) <= carried | base, path


def test_the_bill_of_materials_names_every_file_with_its_sum_and_its_package_with_its_version(bundle):
    document = json.loads((bundle / "sbom.spdx.json").read_text())
    assert document["spdxVersion"] == "SPDX-2.3" and document["creationInfo"]["created"] == "1970-01-02T00:00:00Z"
    sums = {f["fileName"]: c["checksumValue"] for f in document["files"] for c in f["checksums"] if c["algorithm"] == "SHA256"}
    assert sums == {f"./{p.relative_to(bundle)}": hashlib.sha256(p.read_bytes()).hexdigest() for p in elf_files(bundle)}
    packages = {p["SPDXID"]: p for p in document["packages"]}
    (own,) = [p for p in packages.values() if p["name"] == "tandem"]
    assert own["versionInfo"] == "7.8.9"
    owners = {
        r["relatedSpdxElement"]: r["spdxElementId"] for r in document["relationships"] if r["relationshipType"] == "CONTAINS"
    }
    ids = [f["SPDXID"] for f in document["files"]] + list(packages)
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", i) for i in ids)
    for file in document["files"]:
        package = packages[owners[file["SPDXID"]]]
        if file["fileName"].startswith("./bin/"):
            assert package is own
            continue
        assert package["versionInfo"] == sbom.installed(package["name"])["Version"]
        licence = gzip.decompress((bundle / "doc" / package["name"] / "copyright.gz").read_bytes())
        assert licence == pathlib.Path(f"/usr/share/doc/{package['name']}/copyright").read_bytes()


def test_the_same_input_gives_the_same_bytes(packed, tmp_path):
    again = make(tmp_path / "again.tar.gz", "--version=7.8.9", "--epoch=86400")
    assert again.read_bytes() == packed.read_bytes()


@pytest.fixture(scope="module")
def clean_root(tmp_path_factory):
    """A root with the base packages' libraries and the bundle in /opt, and nothing else."""
    root = tmp_path_factory.mktemp("root")
    for name in ("usr/lib", "usr/lib64", "opt", "proc", "dev"):
        (root / name).mkdir(parents=True)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for package in make_bundle.BASE_PACKAGES:
        listed = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True, check=True).stdout
        for line in listed.splitlines():
            name = line.strip("/").removeprefix("usr/")
            if not re.match(r"lib(64)?/", name) or not re.search(r"\.so(\.|$)", name):
                continue
            target = root / "usr" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(f"/usr/{name}", target, follow_symlinks=False)
    packed = make(root / "tandem.tar.gz", f"--checkpoint={ROOT / 'checkpoints/tandem-tiny'}")
    with tarfile.open(packed) as tar:
        tar.extractall(root / "opt")
    packed.unlink()
    return root


def test_the_three_services_answer_a_question_in_a_root_with_nothing_else(clean_root):
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not installed: apt-get install bubblewrap")
    alone = ["bwrap", "--unshare-net", "--dev-bind", "/", "/", "--die-with-parent"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine gives its users no namespaces")
    asked = subprocess.run(
        [*alone, sys.executable, "-m", "tests.bundle.clean_root", clean_root], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "36" in asked.stdout, asked.stdout


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_images_are_not_root_and_start_from_tagged_bases(name):
    text = (IMAGES / f"{name}.Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", text, re.MULTILINE)
    assert len(stages) == 2 and all(re.search(r":\d", image) for image, _ in stages), "two stages, each with a version"
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", last, re.MULTILINE)
    assert "make_bundle.py" in text and "COPY --from=build" in last
    assert {"title", "version", "licenses"} <= set(re.findall(r"org\.opencontainers\.image\.(\w+)=", last))
    assert ("NOT RUN" in text) == (name == "gpu")
