"""The folder of device checks runs elsewhere, writes one log per list, and one fault hides no other test."""

import os
import shutil
import subprocess

import pytest

import device_checks

RUN = device_checks.RUN


def make_folder(folder, lists):
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    shutil.copy(RUN, folder / "run.sh")
    for name, lines in lists.items():
        (folder / f"{name}.list").write_text("".join(f"{line}\n" for line in lines))


def program(folder, name, text):
    path = folder / "bin" / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def run_all(folder, *arguments):
    done = subprocess.run([folder / "run.sh", folder / "logs", *arguments], capture_output=True, text=True, timeout=120)
    logs = {path.stem: path.read_text() for path in (folder / "logs").iterdir()}
    return done.returncode, logs


def test_a_packed_program_finds_its_libraries_in_the_folder(tmp_path):
    """A real program with a library that is not glibc's: ls, as if Bazel had built it."""
    (tmp_path / "bin" / "package").mkdir(parents=True)
    shutil.copy(shutil.which("ls"), tmp_path / "bin" / "package" / "tool")
    (tmp_path / "some.txt").write_text("# what to run\n\n//package:tool --version  # and how\n")
    made = device_checks.pack(tmp_path / "bin", tmp_path / "out", [tmp_path / "some.txt"])
    carried = {path.name for path in (tmp_path / "out" / "lib").iterdir()}
    assert made == (1, len(carried))
    assert "libselinux.so.1" in carried and "libc.so.6" not in carried
    status, logs = run_all(tmp_path / "out")
    assert status == 0
    assert "==== tool --version" in logs["some"] and "coreutils" in logs["some"]
    assert "some tool --version: status 0" in logs["summary"]


def test_what_is_not_built_is_named(tmp_path):
    (tmp_path / "some.txt").write_text("//kernels/cuda:nothing\n")
    with pytest.raises(SystemExit, match="kernels/cuda/nothing is not built: bazel build //kernels/cuda:nothing"):
        device_checks.pack(tmp_path, tmp_path / "out", [tmp_path / "some.txt"])


def test_a_sanitizer_runs_the_tests_alone_and_racecheck_their_small_cases(tmp_path):
    folder = tmp_path / "out"
    make_folder(folder, {"all": ["some_device_test --x", "other_device_test", "some_benchmark"]})
    program(folder, "some_device_test", 'case "$1" in --gtest_list_tests) echo "  SmallCasesOfAll";; *) echo ran "$@";; esac')
    program(folder, "other_device_test", 'case "$1" in --gtest_list_tests) echo "  All";; *) echo ran "$@";; esac')
    program(folder, "some_benchmark", "echo timed")
    program(folder, "compute-sanitizer", 'echo sanitized "$1" "$2"; shift 4; exec "$@"')
    outcomes = {}
    for tool in ("memcheck", "racecheck"):
        environment = os.environ | {"SANITIZER": tool, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        subprocess.run([folder / "run.sh", folder / tool], check=True, capture_output=True, env=environment, timeout=120)
        outcomes[tool] = (folder / tool / "all.log").read_text()
    for tool, log in outcomes.items():
        assert log.count(f"sanitized --tool {tool}") == 2 and "timed" not in log
    assert "ran --x\n" in outcomes["memcheck"] and "SmallCases" not in outcomes["memcheck"]
    assert "ran --x --gtest_filter=*SmallCases*\n" in outcomes["racecheck"] and "ran\n" in outcomes["racecheck"]


GOOGLETEST = """
case "$1" in
  --gtest_list_tests) printf 'Running main()\\nSuite.\\n  First\\n  Second  # GetParam() = 1\\n  Third\\n'; exit 0 ;;
  --gtest_filter=Suite.Third) echo '[       OK ] Suite.Third (1 ms)'; exit 0 ;;
  --gtest_filter=*) echo "$1 fails alone, too"; exit 1 ;;
esac
echo '[ RUN      ] Suite.First'
echo '[       OK ] Suite.First (1 ms)'
echo '[ RUN      ] Suite.Second'
"""


@pytest.mark.parametrize(
    "end", ["kill -SEGV $$", "echo 'launch: cudaErrorIllegalAddress'; echo '[  FAILED  ] Suite.Third (0 ms)'; exit 1"]
)
def test_after_a_fault_every_test_that_has_not_passed_runs_alone(tmp_path, end):
    make_folder(tmp_path, {"a": ["faulty"], "b": ["fine"]})
    program(tmp_path, "faulty", GOOGLETEST + end + "\n")
    program(tmp_path, "fine", "echo well\n")
    status, logs = run_all(tmp_path)
    assert status == 1
    assert "[ALONE] Suite.Second: status 1" in logs["a"]
    assert "[ALONE] Suite.Third: status 0" in logs["a"]
    assert "[ALONE] Suite.First" not in logs["a"]
    assert "well" in logs["b"]
    assert "b fine : status 0" in logs["summary"]


def test_a_program_that_never_ends_is_ended_and_the_next_one_runs(tmp_path):
    make_folder(tmp_path, {"a": ["endless", "fine with words"]})
    program(tmp_path, "endless", "while :; do :; done\n")
    program(tmp_path, "fine", 'echo "$1-$2"\n')
    status, logs = run_all(tmp_path, "3")
    assert status == 1
    assert "a endless : status 124" in logs["summary"]
    assert "with-words" in logs["a"]
