#!/usr/bin/env bash
# Prompt and decode speed of a whole cluster of checkpoints/tandem-tiny on this machine, and PyTorch's beside it.
#   tools/bench/whole_model.sh [--bin_dir DIR] [--torch_python PYTHON] [--threads N]
# DIR: where bazel put the binaries (default: `bazel info bazel-bin`, after building //router //prefill_worker
# //decode_worker //tools/bench_serving). PYTHON: one that has torch and safetensors; without it the peer is left out.
# Prints for the cluster: tokens/s of decode at 1, 8 and 32 clients (answers of 200 tokens after a prompt of 16), and the
# time of a prompt of 4,000 tokens to its first token; then the same of whole_model_peer.py. Run it on an idle machine.
set -euo pipefail
cd "$(dirname "$0")/../.."

bin_dir= torch_python= threads=2
while [ $# -gt 0 ]; do
  case "$1" in
    --bin_dir) bin_dir=$2; shift 2 ;;
    --torch_python) torch_python=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    *) echo "usage: tools/bench/whole_model.sh [--bin_dir DIR] [--torch_python PYTHON] [--threads N]" >&2; exit 2 ;;
  esac
done
[ -n "$bin_dir" ] || bin_dir=$(bazel info bazel-bin 2>/dev/null)
model=$PWD/checkpoints/tandem-tiny
folder=$(mktemp -d)
pids=()
end() {
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait
  rm -rf "$folder"
}
trap end EXIT

read -r p_rpc p_boot p_admin d_rpc d_admin http <<<"$(python3 - <<'PORTS'
import socket
sockets = [socket.socket() for _ in range(6)]
for s in sockets:
    s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))
PORTS
)"
common=(--set "cluster.model_path=$model" --set process.listen_host=127.0.0.1 --set process.kv_cache_tokens=40000)
"$bin_dir/prefill_worker/prefill_worker" "${common[@]}" --set "process.rpc_port=$p_rpc" \
  --set "process.bootstrap_port=$p_boot" --set "process.admin_port=$p_admin" 2>"$folder/prefill.log" & pids+=($!)
"$bin_dir/decode_worker/decode_worker" "${common[@]}" --set "process.rpc_port=$d_rpc" \
  --set "process.admin_port=$d_admin" 2>"$folder/decode.log" & pids+=($!)
"$bin_dir/router/router" --set "cluster.model_path=$model" --set "process.port=$http" \
  --set process.served_model_name=tandem-tiny --set "process.prefill_workers=[127.0.0.1:$p_rpc]" \
  --set "process.decode_workers=[127.0.0.1:$d_rpc]" 2>"$folder/router.log" & pids+=($!)
question='{"model": "tandem-tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}'
for _ in $(seq 120); do
  curl -fsS -m 5 -H 'Content-Type: application/json' -d "$question" "http://127.0.0.1:$http/v1/chat/completions" \
    >/dev/null 2>&1 && break
  sleep 0.5
done

# CLIENTS PROMPT ANSWER REQUESTS
load() {
  "$bin_dir/tools/bench_serving/bench_serving" --backend sglang-oai-chat --base-url "http://127.0.0.1:$http" \
    --model tandem-tiny --dataset-name random-ids --tokenizer "$model" --random-range-ratio 1 --random-input-len "$2" \
    --random-output-len "$3" --max-concurrency "$1" --num-prompts "$4" >"$folder/load.log" 2>&1 || {
    tail -n 5 "$folder/load.log" >&2
    exit 1
  }
}
echo "cluster on $(nproc) processors, $(date -u +%F)"
for clients in 1 8 32; do
  load "$clients" 16 200 $((clients < 8 ? 8 : 2 * clients))
  grep -E "Output token throughput|Median (TTFT|ITL)|P99 ITL" "$folder/load.log" | sed "s/^/decode, $clients clients: /"
done
load 1 4000 1 5
grep -E "Input token throughput|Median TTFT" "$folder/load.log" | sed "s/^/prompt of 4,000 tokens: /"

kill "${pids[@]}"
wait || true
pids=()
if [ -n "$torch_python" ]; then
  "$torch_python" tools/bench/whole_model_peer.py --threads "$threads"
else
  echo "PyTorch left out: no --torch_python"
fi
