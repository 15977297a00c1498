#!/usr/bin/env bash
# Runs every test and ends with "N passed, N failed".
#   tools/test.sh          what every change must pass
#   tools/test.sh --long   and what is too slow for every day: every test under asan+ubsan and under tsan, the
#                          walks and contexts that take minutes, the clients that need gigabytes of packages (see
#                          docs/clients.md), the build without CUDA
set -uo pipefail
cd "$(dirname "$0")/.."

long=
case "${1:-}" in
  "") ;;
  --long) long=1 ;;
  *) echo "usage: tools/test.sh [--long]" >&2; exit 2 ;;
esac

tools/install_packages.sh --tests || exit 1
python=$(tools/python/venv.sh) || exit 1
reports=$(mktemp -d)
trap 'rm -rf "$reports"' EXIT

# One named check that is no unit test: counted as one test, its output shown where it fails.
check() {
  local name=$1
  shift
  echo "== $name"
  local result='<testcase classname="check" name="'$name'"/>'
  if ! "$@"; then result='<testcase classname="check" name="'$name'"><failure/></testcase>'; fi
  echo "<testsuite>$result</testsuite>" >"$reports/$name.xml"
}

echo "== bazel test //..."
# The tests that read official vectors find them in ../shared where a checkout has it beside itself, and skip elsewhere.
bazel test --test_env=TANDEM_SHARED_DIR="${TANDEM_SHARED_DIR:-$(cd .. && pwd)/shared}" //...
bazel_status=$?
# 3: some test failed (the reports say which); anything else but 0: it did not build.
if [ $bazel_status -ne 0 ] && [ $bazel_status -ne 3 ]; then
  echo "error: bazel ended with status $bazel_status"
  check build false
fi

# Seeds of the simulator that nobody has run before, on two cores. A wrong one is printed with the line that repeats it.
fresh_seeds() {
  bazel build //tests/sim:explore || return 1
  local explore
  explore=$(bazel info bazel-bin 2>/dev/null)/tests/sim/explore
  local pids=() status=0
  for _ in 1 2; do
    "$explore" --fresh_for=60 2>/dev/null &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  return $status
}
check fresh_seeds fresh_seeds

check layers tools/check_layers.sh
check docs tools/check_docs.py
check configuration_docs tools/configuration_docs.sh --check
check format tools/check_format.sh

echo "== pytest"
TANDEM_BIN_DIR=$(bazel info bazel-bin 2>/dev/null)
export TANDEM_BIN_DIR
# Three files at a time: most tests wait for processes more than they compute. A file stays in one process, with its
# shared cluster.
"$python" -m pytest -q -m "not large" -n 3 --dist loadfile --junitxml="$reports/pytest.xml" ${long:+--long} tools tests/e2e tests/clients tests/bundle tests/k8s
# The report counts the failures; without one, pytest itself failed.
[ -f "$reports/pytest.xml" ] || check pytest false

if [ -n "$long" ]; then
  for sanitizer in asan tsan; do
    check "$sanitizer" bazel test --config=$sanitizer --build_tests_only --test_tag_filters=-no_sanitizer \
      --build_tag_filters=-no_sanitizer //...
  done
  check long_tests bazel test //kvtransfer:transfer_enumeration_long_test //model:deepseek_model_golden_long_test \
    //tests/workers:cold_start_long_test
  echo "== large clients"
  "$python" -m pytest -q -m large --junitxml="$reports/large_clients.xml" tests/clients
  [ -f "$reports/large_clients.xml" ] || check large_clients false
  check no_cuda env CUDA_HOME=/nonexistent bazel build //...
fi

testlogs=$(bazel info bazel-testlogs 2>/dev/null)
# One report per test target of this tree: a stale folder counts nothing, a missing report counts as failed.
mapfile -t bazel_reports < <(bazel query --noshow_progress --ui_event_filters=-info \
  'tests(//...) except attr(tags, manual, //...)' 2>/dev/null | sed "s|^//|$testlogs/|; s|:|/|; s|\$|/test.xml|")
tools/test_summary.py "${bazel_reports[@]}" "$reports"/*.xml
