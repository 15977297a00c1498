#!/usr/bin/env bash
# Builds what it needs and prints the table of what the router itself takes (README.md beside this file).
#   tools/bench/router_cost.sh [--seconds=N] [--only=NAME]...
set -euo pipefail
cd "$(dirname "$0")/../.."
bazel build //router //tools/bench_serving //tools/bench/router_cost:step_workers >&2
exec "$(tools/python/venv.sh)" tools/bench/router_cost.py --bin_dir "$(bazel info bazel-bin)" "$@"
