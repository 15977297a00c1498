#!/usr/bin/env bash
# From a bare Debian 12 machine to an answer: installs what is missing, builds, starts a router, a prefill and a decode
# worker on loopback, asks one question and serves until Ctrl-C.
#
#   tools/quickstart.sh [--once] [--port 8000] [--model FOLDER] [--question TEXT]
#
# --once ends after the answer. Logs and configuration files stay in the folder it prints.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "error: $1" >&2
  exit 1
}

once= port=8000 model=checkpoints/tandem-tiny question="What is 15% of 240?"
while [ $# -gt 0 ]; do
  case "$1" in
    --once) once=1; shift ;;
    --port | --model | --question)
      [ $# -ge 2 ] || fail "$1 needs a value"
      printf -v "${1#--}" '%s' "$2"
      shift 2 ;;
    *) echo "usage: tools/quickstart.sh [--once] [--port 8000] [--model FOLDER] [--question TEXT]" >&2; exit 2 ;;
  esac
done
[[ "$port" =~ ^[0-9]+$ ]] && [ "$port" -ge 1 ] && [ "$port" -le 65535 ] || fail "--port $port is not a port (1 to 65535)"
[ -f "$model/config.json" ] || fail "--model $model holds no config.json"
model=$(cd "$model" && pwd)
name=$(basename "$model")

tools/install_packages.sh

echo "building (the first time takes some minutes)"
build_log=$(mktemp)
bazel build //router //prefill_worker //decode_worker >"$build_log" 2>&1 || {
  cat "$build_log" >&2
  fail "the build failed; its whole output stands above"
}
rm -f "$build_log"
bin=$(bazel info bazel-bin 2>/dev/null)

# Ports of the two workers follow the router's: one number tells them all.
prefill_rpc=$((port + 1)) decode_rpc=$((port + 2)) bootstrap=$((port + 3)) prefill_admin=$((port + 4)) decode_admin=$((port + 5))
[ "$decode_admin" -le 65535 ] || fail "--port $port leaves no room for the workers' ports up to $decode_admin"
for number in $port $prefill_rpc $decode_rpc $bootstrap $prefill_admin $decode_admin; do
  if (exec 3<>"/dev/tcp/127.0.0.1/$number") 2>/dev/null; then
    fail "port $number of 127.0.0.1 is in use; --port takes another (it and the 5 ports above it)"
  fi
done

folder=$(mktemp -d "${TMPDIR:-/tmp}/tandem-quickstart.XXXXXX")
cat >"$folder/prefill_worker.yaml" <<EOF
cluster:
  model_path: "$model"
process:
  listen_host: "127.0.0.1"
  rpc_port: $prefill_rpc
  bootstrap_port: $bootstrap
  admin_host: "127.0.0.1"
  admin_port: $prefill_admin
  net_devices: "lo"
EOF
cat >"$folder/decode_worker.yaml" <<EOF
cluster:
  model_path: "$model"
process:
  listen_host: "127.0.0.1"
  rpc_port: $decode_rpc
  admin_host: "127.0.0.1"
  admin_port: $decode_admin
  net_devices: "lo"
EOF
cat >"$folder/router.yaml" <<EOF
cluster:
  model_path: "$model"
process:
  port: $port
  served_model_name: "$name"
  prefill_workers: ["127.0.0.1:$prefill_rpc"]
  decode_workers: ["127.0.0.1:$decode_rpc"]
EOF

pids=()
stop() {
  trap - EXIT INT TERM
  [ ${#pids[@]} -eq 0 ] || kill -TERM "${pids[@]}" 2>/dev/null || true
  local status=0
  for pid in "${pids[@]}"; do
    wait "$pid" || { status=$?; echo "error: a process ended with status $status; see $folder" >&2; }
  done
  exit "${1:-$status}"
}
trap 'stop 1' EXIT
trap 'echo; echo "stopping"; stop' INT TERM

for service in prefill_worker decode_worker router; do
  # A session of its own, so that Ctrl-C reaches this script alone and the services drain in order.
  setsid "$bin/$service/$service" --config "$folder/$service.yaml" 2>"$folder/$service.log" &
  pids+=($!)
done

url=http://127.0.0.1:$port
deadline=$((SECONDS + 120))
until curl -sf -o /dev/null "$url/readyz"; do
  i=0
  for service in prefill_worker decode_worker router; do
    kill -0 "${pids[$i]}" 2>/dev/null || fail "$service did not start: $(tail -n 1 "$folder/$service.log")"
    i=$((i + 1))
  done
  [ $SECONDS -lt $deadline ] || fail "not ready after 120 s: $(curl -s "$url/readyz" || true); logs are in $folder"
  sleep 0.1
done

echo "ready: router $url, logs in $folder"
echo
echo "> $question"
tools/ask.py --url "$url" --model "$name" --max_tokens 256 --temperature 0 "$question"
cat <<EOF

Ask another with curl:
  curl -N $url/v1/chat/completions -H 'Content-Type: application/json' -d '{
    "model": "$name", "stream": true, "chat_template_kwargs": {"thinking": true},
    "messages": [{"role": "user", "content": "$question"}]}'
or with the OpenAI client:
  from openai import OpenAI
  client = OpenAI(base_url="$url/v1", api_key="none")
  print(client.chat.completions.create(model="$name", messages=[{"role": "user", "content": "$question"}]).choices[0].message.content)
Metrics: $url/metrics http://127.0.0.1:$prefill_admin/metrics http://127.0.0.1:$decode_admin/metrics (/statusz beside each)
EOF
if [ -n "$once" ]; then stop; fi
echo
echo "serving until Ctrl-C"
# A service that ends by itself ends the whole: -n returns with the first one.
wait -n "${pids[@]}" || true
fail "a service ended by itself; its log is in $folder"
