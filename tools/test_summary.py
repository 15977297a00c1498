#!/usr/bin/env python3
"""Adds up JUnit XML reports (Bazel's and pytest's) and prints each failure and `N passed, N failed[, N skipped]`.

usage: test_summary.py FILE...   exit status 0 iff nothing failed and something passed
A report that cannot be read, or that states an error without a case, counts as one failed test.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count(path):
    """(passed, [names of failures], skipped) of one report."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError) as error:
        return 0, [f"{path}: {error}"], 0
    passed, failed, skipped = 0, [], 0
    for case in root.iter("testcase"):
        name = f"{case.get('classname', path.parent.name)}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{name} ({path})")
        elif case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def parts(path):
    """The reports of a test that Bazel ran in shards, or the one of a whole."""
    return sorted(path.parent.glob("shard_*/test.xml")) or [path]


def main(arguments):
    passed, failed, skipped = 0, [], 0
    for path in [part for argument in arguments for part in parts(pathlib.Path(argument))]:
        file_passed, file_failed, file_skipped = count(path)
        passed += file_passed
        failed += file_failed
        skipped += file_skipped
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
