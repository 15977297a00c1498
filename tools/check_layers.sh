#!/usr/bin/env bash
# The arrows of docs/architecture.md go down only: fails, naming the path, where a target reaches what its layer may
# not know.
set -euo pipefail
cd "$(dirname "$0")/.."

# from | to: no path may lead from the left to the right.
rules='
//router/...           | //kernels/... + //model/... + //kvcache/... + //kvtransfer/... + //prefill_worker/... + //decode_worker/...
//prefill_worker/...   | //decode_worker/... + //router/...
//decode_worker/...    | //prefill_worker/... + //router/...
//model/...            | //kvtransfer/... + //proto/...
//kvtransfer/...       | //model/... + //kernels/...
//kvcache/...          | //kernels/... + //proto/... - //proto:page_key
//kernels/...          | //proto/... + //kvcache/... - //kvcache:kv_layout
//base/...             | //proto/...
'
status=0
while IFS='|' read -r from to; do
  [ -n "${from// /}" ] || continue
  # Tests may reach across layers; libraries and binaries may not.
  path=$(bazel query --noshow_progress --ui_event_filters=-info \
    "somepath(kind('cc_(library|binary)', $from) - attr(testonly, 1, $from), $to)" 2>/dev/null) || {
    echo "error: bazel query failed for $from" >&2; exit 1; }
  if [ -n "$path" ]; then
    echo "layer broken: $from may not reach $to:" $path
    status=1
  fi
done <<<"$rules"
exit $status
