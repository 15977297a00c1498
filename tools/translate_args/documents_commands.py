"""The commands of the public deployment guides for this model, as data: program, flags, environment.

Facts only: each is what a guide has its readers type. translate_args_test.py puts all of them through the tool.
"""

EXP = "--model-path deepseek-ai/DeepSeek-V3.2-Exp"
DRAFTS = "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
TWO_HOSTS = "--model-path $MAPPED_MODEL_PATH --nccl-init $MASTER_ADDR:$MASTER_PORT --nnodes 2 --node-rank $RANK"
SURFACE = '--trust-remote-code --host "0.0.0.0" --port 30000 --log-requests --context-length 65536'
PARSERS = "--allow-auto-truncate --enable-metrics --tool-call-parser deepseekv32 --reasoning-parser deepseek-v3"
PAIR = (
    "--host $LOCAL_IP --port $PORT --tp 8 --dp 8 --enable-dp-attention --dist-init-addr ${HOST}:${DIST_PORT} "
    "--trust-remote-code --mem-fraction-static 0.9"
)


def collected(arguments, before=""):
    """As the guides for two hosts do it: arguments in a variable, output into a log."""
    return (
        f"export SGLANG_DEEPEP_LL_COMBINE_SEND_NUM_SMS=32\nexport SGLANG_SET_CPU_AFFINITY=1\n{before}"
        f"sglang_args=$(echo serve \\\n{arguments} \\\n)\n\nsglang_args=($sglang_args)\n\n"
        'sglang "${sglang_args[@]}" 2>&1 | tee $LOG_DIR/$RANK.log\n'
    )


SERVERS = {
    "quick start": f"sglang serve {EXP} --tp 8",
    "reasoning": f"sglang serve {EXP} --reasoning-parser deepseek-v3 --tp 8 --host 0.0.0.0 --port 30000",
    "4 bits": (
        "python -m sglang.launch_server --model nvidia/DeepSeek-V3.2-NVFP4 --tp 4 --quantization modelopt_fp4 "
        "--moe-runner-backend flashinfer_trtllm --tool-call-parser deepseekv32 --reasoning-parser deepseek-v3"
    ),
    "speciale": (
        "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3.2-Speciale --trust-remote-code "
        "--tp-size 8 --dp-size 8 --enable-dp-attention --reasoning-parser deepseek-v3"
    ),
    "tools": (
        f"sglang serve {EXP} --tool-call-parser deepseekv31 --reasoning-parser deepseek-v3 "
        "--chat-template ./examples/chat_template/tool_chat_template_deepseekv32.jinja --tp 8 --host 0.0.0.0 --port 30000"
    ),
    "drafts and dp": (
        "python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3.2-Exp --tp 8 --dp 8 --enable-dp-attention "
        + DRAFTS
    ),
    "drafts": f"python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3.2-Exp --tp 8 {DRAFTS}",
    "prefill": (
        f"python -m sglang.launch_server {EXP} --disaggregation-mode prefill {PAIR} --disaggregation-bootstrap-port 8998"
    ),
    "decode": f"python -m sglang.launch_server {EXP} --disaggregation-mode decode {PAIR}",
    "context parallel": (
        "python -m sglang.launch_server --model deepseek-ai/DeepSeek-V3.2-Exp --tp 8 --enable-prefill-cp "
        "--attn-cp-size 8 --cp-strategy interleave --max-running-requests 32"
    ),
    "two hosts, dp 2": collected(
        f"{TWO_HOSTS} --tp 16 --dp 2 --enable-dp-attention --page-size 64 {SURFACE} --max-running-requests 128 "
        "--speculative-algorithm EAGLE --speculative-num-steps 2 --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens 3 {PARSERS} --served-model-name DeepSeek-V3.2-Opt-dp2-mtp"
    ),
    "two hosts, cp and pp": collected(
        f"{TWO_HOSTS} --tp 8 --pp-size 2 --dp 1 --enable-dp-attention --moe-a2a-backend deepep --ep-size 16 "
        "--page-size 128 --chunked-prefill-size 16384 --attention-backend dsa --dsa-prefill-backend flashmla_sparse "
        "--dsa-decode-backend flashmla_sparse --enable-prefill-cp --cp-strategy interleave "
        f"--cuda-graph-max-bs-decode 128 --max-running-requests 128 {SURFACE} {PARSERS} "
        "--served-model-name DeepSeek-V3.2-dsa-pp-cp-ep-dp"
    ),
    "two hosts, fp8": collected(
        f"{TWO_HOSTS} --tp 8 --pp-size 2 --pp-async-batch-depth 1 \\\n$dp_config \\\n{SURFACE} --max-running-requests 128 "
        f"\\\n$cp_config \\\n--kv-cache-dtype fp8_e4m3 {PARSERS} --served-model-name DeepSeek-V3.2-Opt-fp8kv-pp2-cp4",
        before='dp_config=" \\\n--dp 1 --enable-dp-attention \\\n"\ncp_config=" \\\n--enable-prefill-cp \\\n'
        '--cp-strategy interleave \\\n"\n',
    ),
    "latency": f"sglang serve {EXP} --tp 8 {DRAFTS} --host 0.0.0.0 --port 30000",
    "throughput": f"sglang serve {EXP} --tp 8 --ep 8 --dp 8 --enable-dp-attention --host 0.0.0.0 --port 30000",
}

ROUTER = (
    "python -m sglang_router.launch_router --pd-disaggregation --prefill $PREFILL_ADDR 8998 --decode $DECODE_ADDR "
    "--host 127.0.0.1 --port 30000"
)

# Flags that the guides name in their text, beside the commands.
NAMED_FLAGS = (
    "--dsa-topk-backend sgl-kernel", "--dsa-prefill-backend flashmla_sparse_q8", "--dsa-decode-backend flashmla_kv",
    "--kv-cache-dtype fp8_e4m3", "--moe-runner-backend flashinfer_cutlass", "--dist-timeout 3600",
    "--disable-overlap-schedule", "--max-running-requests 48", "--enable-hisparse",
    "--hisparse-config '{\"top_k\": 2048, \"device_buffer_size\": 6144, \"host_to_device_ratio\": 10, \"swap_in_block_size\": 960}' --enable-hisparse",
    "--json-model-override-args '{\"index_topk_freq\": 4}'", "--dp 1",
)  # fmt: skip

CLIENTS = (
    "python3 -m sglang.bench_serving --backend sglang --host 127.0.0.1 --port 30000 --model deepseek-ai/DeepSeek-V3.2-Exp "
    "--random-input-len 1024 --random-output-len 1024 --num-prompts 10 --max-concurrency 1",
    "python3 -m sglang.test.few_shot_gsm8k --num-questions 200 --port 30000",
    "python3 benchmark/gsm8k/bench_sglang.py --num-shots 8 --num-questions 1319 --parallel 1319",
    "python3 benchmark/mmlu/bench_sglang.py --nsub 10 --port 30000",
    "python3 -m sglang.test.run_eval --port 30000 --eval-name gpqa --num-examples 198 --max-tokens 128000 --repeat 8 "
    "--thinking-mode deepseek-v3",
)

DEFINITIONS = {
    "LOCAL_IP": "10.0.0.7", "PORT": "30000", "MAPPED_MODEL_PATH": "/models/DeepSeek-V3.2",
    "PREFILL_ADDR": "http://10.0.0.7:30000", "DECODE_ADDR": "http://10.0.0.8:30000",
}  # fmt: skip
