#!/usr/bin/env python3
"""Checks every Markdown file of the tree: one H1, no dead relative link, every `path/to/file` in backticks exists.

In docs/operations.md every `"log line"` must be one that a service writes.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOP = {p.name for p in ROOT.iterdir() if p.is_dir()}
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"`([A-Za-z0-9_.\-/]+/[A-Za-z0-9_.\-]*)`")
LOG_LINE = re.compile(r'`"([^"`]+)"`')
LOGGED = re.compile(r'LOG_(?:INFO|WARNING|ERROR)\(\s*"([^"]+)"')
SUFFIXES = ("", ".h", ".cc", ".py", ".sh", ".proto", ".md")


def logged():
    """The events of all log lines in the services' code."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.cc", "*.h"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    return {event for name in names for event in LOGGED.findall((ROOT / name).read_text(encoding="utf-8"))}


def faults(path):
    inside_code, headings, text = False, 0, []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside_code = not inside_code
            continue
        if inside_code:
            continue
        headings += line.startswith("# ")
        text.append(line)
    if headings != 1:
        yield f"{headings} top headings, 1 expected"
    body = "\n".join(text)
    for target in LINK.findall(body):
        if "://" not in target and not (path.parent / target).exists():
            yield f"dead link {target}"
    if path.name == "operations.md":
        for event in sorted(set(LOG_LINE.findall(body)) - logged()):
            yield f"no service logs {event!r}"
    for name in CODE.findall(body):
        if name.split("/")[0] in TOP and not any((ROOT / (name + suffix)).exists() for suffix in SUFFIXES):
            yield f"no such path {name}"


def main():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split()
    found = [f"{name}: {fault}" for name in names for fault in faults(ROOT / name)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
