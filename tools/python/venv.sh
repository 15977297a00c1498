#!/usr/bin/env bash
# Makes the virtual environment of requirements.txt once and prints the path of its python, the only line on stdout:
#   PYTHON=$(tools/python/venv.sh)
#   PYTHON=$(tools/python/venv.sh tests/clients/sglang.txt)   that of a list which names every package it needs
# For a list of its own pip looks for nothing beyond it (--no-deps): a client whose package asks for a whole engine is
# installed with what the client alone imports.
# The environment's folder is named by a hash of the requirements and of the interpreter's version, so that a changed
# list gets a new one and an unchanged list costs nothing. TANDEM_CACHE_DIR moves it (default ~/.cache/tandem).
set -euo pipefail

fail() {
  echo "tools/python/venv.sh: $1" >&2
  exit 1
}

requirements="${1:-$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/requirements.txt}"
deps=${1:+--no-deps}
[[ -r "$requirements" ]] || fail "no list of packages $requirements"
python=/usr/bin/python3
[[ -x "$python" ]] || fail "no $python: apt-get install python3"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail "python $version has no venv module: apt-get install python3-venv"

hash=$({ echo "$version"; cat "$requirements"; } | sha256sum | cut -c1-12)
cache="${TANDEM_CACHE_DIR:-$HOME/.cache/tandem}"
venv="$cache/venv-$hash"
mkdir -p "$cache" || fail "cannot make the folder $cache"

# Two scripts may come here at once: the second waits for the first.
exec 9>"$venv.lock"
flock 9

if [[ ! -e "$venv/.complete" ]]; then
  rm -rf "$venv"
  "$python" -m venv "$venv" >&2 || fail "python3 -m venv $venv failed"
  log="$cache/venv-$hash.log"
  if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $deps --requirement "$requirements" \
    >"$log" 2>&1; then
    tail -n 3 "$log" >&2
    fail "pip could not install $requirements (is the package index reachable?); whole output in $log"
  fi
  touch "$venv/.complete"
fi
echo "$venv/bin/python"
