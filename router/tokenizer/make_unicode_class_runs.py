#!/usr/bin/env python3
"""Writes unicode_class_runs.inc: where the coarse class of Unicode code points changes.

The version is part of the tokenizer's meaning: a character that is a symbol in one version and unassigned in another is
cut differently. 16.0.0 is what the reference implementation (Hugging Face tokenizers 0.23) has, code point by code point.
Usage: python3 -m pip install unicodedata2==16.0.0 && python3 make_unicode_class_runs.py > unicode_class_runs.inc
"""

import unicodedata2

VERSION = "16.0.0"
# Order of enum class UnicodeClass.
OTHER, LETTER, MARK, NUMBER, PUNCTUATION, SYMBOL, SPACE, NEWLINE = range(8)
BY_CATEGORY = {"L": LETTER, "M": MARK, "N": NUMBER, "P": PUNCTUATION, "S": SYMBOL, "Z": SPACE, "C": OTHER}
SPACE_CONTROLS = {0x09, 0x0B, 0x0C, 0x85}  # White_Space is category Z, these, CR and LF
NEWLINES = {0x0A, 0x0D}


def class_of(code_point: int) -> int:
    if code_point in NEWLINES:
        return NEWLINE
    if code_point in SPACE_CONTROLS:
        return SPACE
    return BY_CATEGORY[unicodedata2.category(chr(code_point))[0]]


def main() -> None:
    if unicodedata2.unidata_version != VERSION:
        raise SystemExit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, needed is {VERSION}")
    runs, last = [], None
    for code_point in range(0x110000):
        current = class_of(code_point)
        if current != last:
            runs.append(f"0x{code_point:X}{current:X}")
            last = current
    print(f"// Written by make_unicode_class_runs.py from Unicode {VERSION}. Each entry is code point << 4 | class: the")
    print("// class holds from this code point up to the next entry's.")
    line = ""
    for run in runs:
        if len(line) + len(run) + 2 > 120:
            print(line.rstrip())
            line = ""
        line += run + ", "
    print(line.rstrip())


if __name__ == "__main__":
    main()
