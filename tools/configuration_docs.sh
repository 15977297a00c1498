#!/usr/bin/env bash
# docs/configuration.md from the schemas of the three services; --check fails where the committed file differs.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(bazel info bazel-bin 2>/dev/null)
page=$(mktemp)
trap 'rm -f "$page"' EXIT
{
  cat <<'EOF'
# Configuration

Each service reads one YAML file (`--config FILE`) and overrides (`--set section.name=value`, repeatable); `--print_config` prints what is in force, `--validate_only` checks and exits. `cluster:` is what all sides share: the handshake refuses sides whose model, page size, KV format or layers differ, naming each; `context_length` may differ, the smallest limits. `process:` belongs to one process. Unknown keys, wrong types and values out of range stop the start with file, line and what is allowed.

Made by `tools/configuration_docs.sh` from the schemas in the code.
EOF
  for service in router prefill_worker decode_worker; do
    echo
    "$bin/$service/$service" --print_config_docs
  done
} >"$page"
if [ "${1:-}" = --check ]; then
  diff -u docs/configuration.md "$page" || { echo "error: docs/configuration.md is not what the schemas say: run tools/configuration_docs.sh" >&2; exit 1; }
else
  cp "$page" docs/configuration.md
fi
