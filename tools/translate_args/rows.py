"""Every flag and variable of SGLang's commands that is known here: our field, or why there is none.

A row is the whole knowledge about one flag; what several flags say together (ranks, roles, drafts) is translate.py's.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """names: the flag and what else it is called. ours: field or fields; empty: none. why: what else is to be known."""

    names: tuple
    takes: str  # what stands behind it: "" nothing, "value", "values" (one or two)
    ours: str = ""
    why: str = ""

    @property
    def name(self):
        return self.names[0]


def _row(names, takes, ours="", why=""):
    return Row(tuple(names.split()), takes, ours, why)


KERNELS = "each op has one kernel for each kind of device (docs/kernels): nothing to choose"
RANKS = "with --tp, --dp, --attn-cp-size: the ranks of a worker (docs/parallelism.md)"
HOSTS = "a worker's ranks are threads of one process: no ranks on further hosts yet"

SERVE_ROWS = (
    # Model
    _row("--model-path --model", "value", "cluster.model_path", "a folder; a name of a hub becomes /models/<its last part>"),
    _row("--served-model-name", "value", "router: process.served_model_name"),
    _row("--trust-remote-code", "", why="no code of a checkpoint is ever run"),
    _row("--context-length", "value", "cluster.context_length, process.kv_cache_tokens",
         "a pool holds one sequence of that length at least"),
    _row("--kv-cache-dtype", "value", "cluster.kv_cache_dtype",
         "fp8_e4m3, or bfloat16 for bf16; auto and no flag: ours is fp8_e4m3, SGLang's is BF16 on Hopper"),
    _row("--quantization", "value", why="read from the checkpoint; 4-bit checkpoints are refused"),
    _row("--json-model-override-args", "value", "cluster.index_topk_pattern, cluster.index_topk_freq",
         "other keys are refused"),
    _row("--page-size", "value", "cluster.page_size", "64, whatever is asked for; so does SGLang for this model"),
    # Ranks
    _row("--tp --tp-size --tensor-parallel-size", "value", "process.tensor_parallel_size", RANKS),
    _row("--dp --dp-size --data-parallel-size", "value", "process.data_parallel_size",
         "with --enable-dp-attention; without it SGLang means so many servers: start so many pairs"),
    _row("--enable-dp-attention", "", "process.data_parallel_size", RANKS),
    _row("--ep --ep-size --expert-parallel-size", "value", "process.expert_parallel_size",
         "experts are spread over all ranks of a worker or none"),
    _row("--enable-prefill-cp", "", "prefill: process.context_parallel_size"),
    _row("--attn-cp-size", "value", "prefill: process.context_parallel_size", "without it --tp over --dp, as there"),
    _row("--cp-strategy", "value", "prefill: process.context_parallel_strategy", "interleave; zigzag is refused"),
    _row("--pp-size --pipeline-parallel-size", "value",
         why="process.pipeline_parallel_size is for a worker of stages alone: not together with other ranks yet"),
    _row("--pp-async-batch-depth", "value", why="process.pipeline_parallel_async_depth is for a worker of stages alone"),
    _row("--nnodes", "value", why=HOSTS),
    _row("--node-rank", "value", why=HOSTS),
    _row("--dist-init-addr --nccl-init", "value", why=HOSTS),
    _row("--dist-timeout", "value", why="nothing waits for ranks at the start; a failed one ends all at once"),
    _row("--moe-a2a-backend", "value", why="one way to send rows to experts (docs/parallelism.md)"),
    # Kernels
    _row("--moe-runner-backend", "value", why=KERNELS),
    _row("--attention-backend", "value", why=KERNELS),
    _row("--dsa-prefill-backend", "value", why=KERNELS),
    _row("--dsa-decode-backend", "value", why=KERNELS),
    _row("--dsa-topk-backend", "value", why=KERNELS),
    _row("--cuda-graph-max-bs-decode --cuda-graph-max-bs", "value",
         why="steps of up to 128 rows are recorded as graphs where that serves"),
    _row("--disable-overlap-schedule", "", why="the engine has no such switch: steps follow each other"),
    # Memory and lines
    _row("--mem-fraction-static", "value", why="process.kv_cache_tokens says the pool's size in tokens; no fraction does"),
    _row("--chunked-prefill-size", "value", "prefill: process.chunked_prefill_size", "-1, no chunks, takes the most, 65536"),
    _row("--max-running-requests", "value", "process.max_running_requests"),
    _row("--max-queued-requests", "value", "process.max_queued_requests"),
    _row("--schedule-policy", "value", "process.schedule_policy", "fcfs; others order by what is cached: fcfs, too"),
    _row("--enable-priority-scheduling", "", "process.schedule_policy", "priority"),
    _row("--disable-radix-cache", "", "process.prefix_cache", "false"),
    _row("--disaggregation-decode-enable-radix-cache", "", "decode: process.prefix_cache", "on without it"),
    _row("--enable-hisparse", "", "decode: process.hisparse.enabled"),
    _row("--hisparse-config", "value",
         "decode: process.hisparse.top_k, .device_buffer_size, .host_to_device_ratio",
         "swap_in_block_size is a kernel's and has none; other keys are refused"),
    # Drafts
    _row("--speculative-algorithm", "value", "cluster.speculative", "EAGLE and NEXTN: the checkpoint's MTP layer"),
    _row("--speculative-num-steps", "value", "cluster.speculative.num_steps"),
    _row("--speculative-eagle-topk", "value", "cluster.speculative.topk", "1: chains, no trees"),
    _row("--speculative-num-draft-tokens", "value", "cluster.speculative.num_draft_tokens", "num_steps + 1"),
    # Prefill and decode apart
    _row("--disaggregation-mode", "value", why="the service to start: prefill_worker or decode_worker; without it both"),
    _row("--disaggregation-bootstrap-port", "value", "prefill: process.bootstrap_port"),
    _row("--disaggregation-transfer-backend", "value", "process.lanes",
         "rates are measured and the best lane of process.lanes is taken"),
    _row("--disaggregation-ib-device", "value", why="no lane over RDMA yet"),
    # The surface
    _row("--host", "value", "router: process.host; workers: process.listen_host",
         "workers that others reach need process.peers"),
    _row("--port", "value", "router: process.port; workers: process.rpc_port"),
    _row("--api-key", "value", "router: process.auth.api_keys_file", "keys stand in a file, never on a command line"),
    _row("--reasoning-parser", "value", why="the prompt format brings its parser; a request turns thinking on"),
    _row("--tool-call-parser", "value", "router: process.chat.format", "deepseekv31: v3.1, deepseekv32: v3.2"),
    _row("--chat-template", "value", why="formats are code, chosen by the checkpoint (docs/chat_formats.md)"),
    _row("--allow-auto-truncate", "", "router: process.allow_auto_truncate"),
    _row("--enable-metrics", "", why="always on: /metrics of each service"),
    _row("--log-requests", "", "router: process.log_requests", "parameters; prompts, too, only where that is asked for"),
)

ROUTER_ROWS = (
    _row("--pd-disaggregation", "", why="there is no other kind"),
    _row("--prefill", "values", "process.prefill_workers",
         "the workers' rpc_port; their bootstrap port is told by themselves"),
    _row("--decode", "value", "process.decode_workers"),
    _row("--host", "value", "process.host"),
    _row("--port", "value", "process.port"),
    _row("--policy", "value", "process.policy",
         "cache_aware: prefix; random, round_robin, power_of_two; consistent_hashing and prefix_hash: consistent_hash"),
    _row("--max-concurrent-requests", "value", "process.max_inflight_requests", "-1, no bound, has none"),
    _row("--queue-size", "value", "process.max_queued_requests"),
    _row("--queue-timeout-secs", "value", "process.queue_timeout"),
    _row("--request-timeout-secs", "value", "process.request_timeout"),
    _row("--shutdown-grace-period-secs", "value", "process.drain_grace"),
    _row("--max-payload-size", "value", "process.http.body_bytes_max"),
    _row("--worker-startup-timeout-secs", "value", why="workers are used from when they are ready on, however late"),
    _row("--service-discovery", "", "process.discovery.kubernetes", "with the two selectors below"),
    _row("--service-discovery-namespace", "value", "process.discovery.kubernetes.namespace"),
    _row("--service-discovery-port", "value", why="EndpointSlices say it; process.discovery.kubernetes.port_name"),
    _row("--prefill-selector", "value", "process.discovery.kubernetes.prefill_selector", "labels of EndpointSlices, not pods"),
    _row("--decode-selector", "value", "process.discovery.kubernetes.decode_selector", "labels of EndpointSlices, not pods"),
)

VARIABLE_ROWS = (
    _row("SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD", "value", "cluster.dense_attention_max_context",
         "of prefill and decode, row by row; below index_topk: refused by the workers"),
    _row("SGLANG_DEEPEP_LL_COMBINE_SEND_NUM_SMS", "value", why="DeepEP's: nothing here has it"),
    _row("SGLANG_SET_CPU_AFFINITY", "value", why="threads are the scheduler's; pin the process with taskset or the pod's CPU request"),
)


def by_name(rows):
    return {name: row for row in rows for name in row.names}


def markdown():
    """The rows as docs/translate_args.md has them."""
    lines = []
    for title, rows in (
        ("Flags of `sglang serve` and `sglang.launch_server`", SERVE_ROWS),
        ("Flags of `sglang_router.launch_router`", ROUTER_ROWS),
        ("Environment variables", VARIABLE_ROWS),
    ):
        lines += [f"### {title}", "", "| theirs | ours | |", "|---|---|---|"]
        for row in rows:
            theirs = ", ".join(f"`{name}`" for name in row.names)
            lines.append(f"| {theirs} | {row.ours or 'none'} | {row.why} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
