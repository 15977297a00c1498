#!/usr/bin/env bash
# Installs the Debian packages that are missing; says nothing where none is.
#   tools/install_packages.sh          what building and running takes (third_party/packages.txt)
#   tools/install_packages.sh --tests  and what the tests take (third_party/packages_test.txt)
set -euo pipefail
cd "$(dirname "$0")/.."

lists=(third_party/packages.txt)
[ "${1:-}" != --tests ] || lists+=(third_party/packages_test.txt)
# "PACKAGE unless COMMAND": not wanted where the command is there already, by whatever package.
mapfile -t wanted < <(grep -hv '^#' "${lists[@]}" | while read -r package unless command; do
  [ "$unless" = unless ] && command -v "$command" >/dev/null || echo "$package"
done)
mapfile -t missing < <(
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^ii //p' | sort -u)
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) <(printf '%s\n' "$installed")
)
[ "${#missing[@]}" -gt 0 ] && [ -n "${missing[0]}" ] || exit 0

command -v apt-get >/dev/null || { echo "error: this needs Debian 12 (no apt-get here); missing packages: ${missing[*]}" >&2; exit 1; }
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo=(sudo -n)
  else
    echo "error: not root and no password-less sudo; install these first: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi
echo "installing ${#missing[@]} Debian packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! "${sudo[@]}" apt-get update >"$log" 2>&1 ||
   ! "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
  echo "error: apt-get could not install: $(grep -m1 '^E:' "$log" || tail -n 1 "$log")" >&2
  exit 1
fi
