#!/usr/bin/env bash
# run.sh LOGS [SECONDS]: runs what device_checks.py packed beside this file. Status 1 where something failed.
# SANITIZER=memcheck|racecheck|synccheck: the tests alone, under compute-sanitizer; racecheck, which slows programs a
# hundredfold, only the cases named *SmallCases* of a binary that has such.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
logs=${1:?usage: run.sh LOGS [SECONDS]}
limit=${2:-120}
export LD_LIBRARY_PATH=$here/lib
mkdir -p "$logs"
summary=$logs/summary.log
: >"$summary"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >>"$summary" 2>&1
# After one of these nothing else on the device succeeds within the process.
lost='cudaErrorIllegalAddress|cudaErrorLaunchFailure|cudaErrorMisalignedAddress|cudaErrorIllegalInstruction|cudaErrorInvalidPc|cudaErrorInvalidAddressSpace|cudaErrorHardwareStackError|cudaErrorAssert|cudaErrorLaunchTimeout'

# Every test of a binary that has not passed, in a process of its own.
one_by_one() {  # binary log of the first run
  local suite='' name
  "$1" --gtest_list_tests 2>/dev/null | while read -r name _; do
    case $name in
      *.) suite=$name; continue ;;
      Running) continue ;;
    esac
    grep -qF "[       OK ] $suite$name (" "$2" && continue
    timeout -k 5 "$limit" "$1" --gtest_filter="$suite$name" </dev/null
    echo "[ALONE] $suite$name: status $?"
  done
}

# Of a list's line: the words to run it with.
checked() {  # binary arguments...
  if [ -z "${SANITIZER:-}" ]; then
    printf '%s\n' "$@"
    return
  fi
  printf '%s\n' compute-sanitizer --tool "$SANITIZER" --error-exitcode 9 "$@"
  if [ "$SANITIZER" = racecheck ] && "$1" --gtest_list_tests 2>/dev/null | grep -q SmallCases; then
    printf '%s\n' '--gtest_filter=*SmallCases*'
  fi
}

failed=0
for list in "$here"/*.list; do
  log=$logs/$(basename "$list" .list).log
  : >"$log"
  while read -r name arguments; do
    [ -z "${SANITIZER:-}" ] || [[ $name == *_test ]] || continue
    echo "==== ${SANITIZER:+$SANITIZER }$name $arguments" >>"$log"
    part=$(mktemp)
    started=$SECONDS
    # shellcheck disable=SC2086  # arguments are words
    mapfile -t words < <(checked "$here/bin/$name" $arguments)
    timeout -k 5 "$limit" "${words[@]}" >"$part" 2>&1 </dev/null
    status=$?
    cat "$part" >>"$log"
    if [ $status -ne 0 ] && grep -q '^\[ RUN ' "$part" && { [ $status -ge 124 ] || grep -qE "$lost" "$part"; }; then
      echo "---- $name: status $status; each test that has not passed again, alone" >>"$log"
      one_by_one "$here/bin/$name" "$part" >>"$log" 2>&1
    fi
    [ $status -eq 0 ] || failed=1
    echo "$(basename "$list" .list) $name $arguments: status $status, $((SECONDS - started)) s," \
      "$(grep -cF '[       OK ]' "$part") passed, $(grep -cE '^\[  FAILED  \] [A-Za-z0-9_/]+\.[A-Za-z0-9_/]+ \(' "$part")" \
      "failed, $(grep -cE '^\[  SKIPPED \] [A-Za-z0-9_/]+\.[A-Za-z0-9_/]+ \(' "$part") skipped" >>"$summary"
    rm -f "$part"
  done <"$list"
done
cat "$summary"
exit $failed
