#!/usr/bin/env bash
# Every C++ and proto file is as clang-format writes it (.clang-format); tools/check_format.sh --fix makes it so.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)
git ls-files -co --exclude-standard '*.h' '*.cc' '*.cu' '*.cuh' | xargs -r clang-format "${mode[@]}"
