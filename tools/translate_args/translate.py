"""From the flags of one command to the YAML of our services, with a note for whatever is not the same."""

import json
import re

from tools.translate_args import rows
from tools.translate_args.commands import ROUTER, Refusal, parse

PREFILL, DECODE, GATEWAY = "prefill_worker", "decode_worker", "router"
RPC_PORTS = {PREFILL: 8101, DECODE: 8102}
ADMIN_PORTS = {PREFILL: 9101, DECODE: 9102}
BOOTSTRAP_PORT = 8998
PORT = 30000  # SGLang's
POOL_TOKENS = 16384  # kv_cache_tokens where nothing asks for more
CHUNK_MAX = 65536
HOST_RATIO_MAX = 5  # of V3.2 in FP8 without the MTP layer
RANKS_MAX = 64  # of a worker
TOKEN_FILE = "/etc/tandem-peers/token"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CHAT_FORMATS = {"deepseekv31": "v3.1", "deepseekv32": "v3.2"}
POLICIES = {
    "cache_aware": "prefix", "random": "random", "round_robin": "round_robin", "power_of_two": "power_of_two",
    "consistent_hashing": "consistent_hash", "prefix_hash": "consistent_hash",
}  # fmt: skip


class Translation:
    """configs: {service: its YAML as a dict}; notes: what is other than in the command, and why."""

    def __init__(self):
        self.configs = {}
        self.notes = []

    def put(self, service, name, value):
        place = self.configs.setdefault(service, {})
        *folders, leaf = name.split(".")
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = value

    def put_all(self, services, name, value):
        for service in services:
            self.put(service, name, value)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)


def _number(flags, name, default=None):
    if name not in flags:
        return default
    text = flags[name]
    _resolved(name, text)
    try:
        return int(text)
    except ValueError:
        raise Refusal(f"{name} is {text}, a number is wanted") from None


def _resolved(name, text):
    """The value of a flag that goes into a setting: no variable may be open in it."""
    if match := re.search(r"\$\{?(\w+)\}?", text):
        raise Refusal(f"{name} is {text} and ${match[1]} has no value: --define {match[1]}=VALUE")
    return text


def _choice(flags, name, known):
    value = _resolved(name, flags[name])
    if value not in known:
        raise Refusal(f"{name} is {value}, known are {', '.join(known)}")
    return known[value]


def _is_local(host):
    return host in LOOPBACK


def _model_path(flags, override):
    if override is not None:
        return override
    if "--model-path" not in flags:
        raise Refusal("no --model-path: which checkpoint is to be served?")
    given = _resolved("--model-path", flags["--model-path"])
    is_folder = given.startswith(("/", ".", "~"))
    return given if is_folder else "/models/" + given.rstrip("/").rsplit("/", 1)[-1]


def _json(flags, name, fields):
    """A flag's JSON object, whose keys are among `fields`."""
    try:
        value = json.loads(flags[name])
    except json.JSONDecodeError as error:
        raise Refusal(f"{name} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise Refusal(f"{name} is {flags[name]}, an object is wanted")
    for key in value:
        if key not in fields:
            raise Refusal(f"{name} has the key {key}, known are {', '.join(fields)}")
    return value


def _shared(flags, environment, services, out):
    """The section that all services have in common."""
    if flags.get("--quantization") == "modelopt_fp4":
        out.note("--quantization modelopt_fp4: workers refuse 4-bit checkpoints; serve the FP8 one")
    if "--context-length" in flags:
        length = _number(flags, "--context-length")
        out.put_all(services, "cluster.context_length", length)
        if length > POOL_TOKENS:
            workers = [s for s in services if s != GATEWAY]
            out.put_all(workers, "process.kv_cache_tokens", -(-length // 64) * 64)
            out.note(f"process.kv_cache_tokens {-(-length // 64) * 64} holds one sequence: raise it to what memory allows")
    if "--kv-cache-dtype" in flags:
        kinds = {"fp8_e4m3": "fp8_e4m3", "bf16": "bfloat16", "bfloat16": "bfloat16", "auto": None}
        kind = _choice(flags, "--kv-cache-dtype", kinds)
        if kind is not None:
            out.put_all(services, "cluster.kv_cache_dtype", kind)
    if _number(flags, "--page-size", 64) != 64:
        out.note(f"--page-size {flags['--page-size']}: pages have 64 tokens, here and for this model there, too")
    if "--json-model-override-args" in flags:
        override = _json(flags, "--json-model-override-args", ("index_topk_pattern", "index_topk_freq"))
        for key, value in override.items():
            out.put_all(services, f"cluster.{key}", value)
    threshold = environment.get("SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD")
    if threshold is not None:
        out.put_all(services, "cluster.dense_attention_max_context",
                    _number({"SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD": threshold},
                            "SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD"))
        out.note("cluster.dense_attention_max_context holds for prefill and decode, and row by row")
    if "--speculative-algorithm" in flags:
        _choice(flags, "--speculative-algorithm", {"EAGLE": 1, "NEXTN": 1})
        steps = _number(flags, "--speculative-num-steps")
        if steps is None:
            raise Refusal("--speculative-algorithm without --speculative-num-steps")
        tokens = _number(flags, "--speculative-num-draft-tokens", steps + 1)
        if _number(flags, "--speculative-eagle-topk", 1) != 1:
            raise Refusal(f"--speculative-eagle-topk is {flags['--speculative-eagle-topk']}, must be 1: chains, no trees")
        if tokens != steps + 1:
            raise Refusal(f"--speculative-num-draft-tokens is {tokens}, must be --speculative-num-steps + 1 = {steps + 1}")
        out.put_all(services, "cluster.speculative.num_steps", steps)
        out.put_all(services, "cluster.speculative.num_draft_tokens", tokens)
    elif any(name.startswith("--speculative-") for name in flags):
        raise Refusal("drafts are asked for without --speculative-algorithm")


def _ranks(flags, workers, ranks_max, out):
    """tensor, data, expert and context parallel sizes of each worker."""
    tp, dp, pp = (_number(flags, f"--{name}", 1) for name in ("tp", "dp", "pp-size"))
    if min(tp, dp, pp) < 1:
        raise Refusal(f"--tp {tp} --dp {dp} --pp-size {pp}: each must be at least 1")
    attention_dp = "--enable-dp-attention" in flags and dp > 1
    if dp > 1 and not attention_dp:
        out.note(f"--dp {dp} without --enable-dp-attention: so many servers; start {dp} pairs and name all in the router")
    if attention_dp and tp % dp != 0:
        raise Refusal(f"--tp {tp} is no multiple of --dp {dp}")
    if attention_dp and dp < tp:
        out.note(f"--tp {tp} --dp {dp}: attention would be cut {tp // dp} ways within each of {dp} parts; a worker divides "
                 f"its work in one way, and data_parallel_size {tp} is the nearest")
    if pp > 1:
        out.note(f"--pp-size {pp}: pipeline stages go together with no other ranks yet; a worker has the {tp} ranks of one stage and all layers")
    if _number(flags, "--nnodes", 1) > 1:
        out.note(f"--nnodes {flags['--nnodes']}: a worker is one process; start this on one host, or a pair on each")
    if "--cp-strategy" in flags and flags["--cp-strategy"] != "interleave":
        raise Refusal(f"--cp-strategy is {flags['--cp-strategy']}: only interleave; halves of a prompt paired up balance "
                      "dense attention, and sparse rows cost alike")
    cp = _number(flags, "--attn-cp-size", tp // dp if attention_dp else tp) if "--enable-prefill-cp" in flags else 1
    if "--enable-prefill-cp" not in flags and "--attn-cp-size" in flags:
        raise Refusal("--attn-cp-size without --enable-prefill-cp")
    if cp > 1 and attention_dp:
        raise Refusal(f"--enable-prefill-cp with --dp {dp}: a worker's ranks divide its work in one way; use --dp 1")
    ep = _number(flags, "--ep", 1)
    ranks = max(tp, cp)
    if ep not in (1, ranks):
        out.note(f"--ep {ep}: experts are spread over all {ranks} ranks of a worker")
    if ranks == 1:
        return
    if ranks_max is not None and ranks > ranks_max:
        out.note(f"{ranks} ranks scaled down to {ranks_max}")
        ranks = ranks_max
    if ranks > RANKS_MAX:
        raise Refusal(f"{ranks} ranks, a worker has {RANKS_MAX} at most")
    for worker in workers:
        if worker == DECODE and "--enable-hisparse" in flags:
            out.note("--enable-hisparse: a decode worker with device buffers is one rank")
            continue
        if worker == PREFILL and cp > 1:
            out.put(worker, "process.context_parallel_size", ranks)
            out.put(worker, "process.context_parallel_strategy", "interleave")
        elif attention_dp:
            out.put(worker, "process.data_parallel_size", ranks)
        else:
            out.put(worker, "process.tensor_parallel_size", ranks)
        out.put(worker, "process.expert_parallel_size", ranks)
    out.note("experts are spread over the ranks (expert_parallel_size) so that each holds its part of the weights only")
    out.note("ranks run on CPUs so far: with process.device cuda:N workers of several ranks are refused")


def _worker_flags(flags, workers, out):
    if PREFILL in workers:
        chunk = _number(flags, "--chunked-prefill-size")
        if chunk is not None:
            out.put(PREFILL, "process.chunked_prefill_size", CHUNK_MAX if chunk == -1 else chunk)
    if "--enable-priority-scheduling" in flags:
        out.put_all(workers, "process.schedule_policy", "priority")
    elif "--schedule-policy" in flags:
        out.put_all(workers, "process.schedule_policy", "fcfs")
        if flags["--schedule-policy"] != "fcfs":
            out.note(f"--schedule-policy {flags['--schedule-policy']}: requests are taken in order of arrival")
    for name, setting in (("--max-running-requests", "max_running_requests"), ("--max-queued-requests", "max_queued_requests")):
        value = _number(flags, name)
        if value is not None:
            out.put_all(workers, f"process.{setting}", value)
    if "--disable-radix-cache" in flags:
        out.put_all(workers, "process.prefix_cache", False)
    if "--mem-fraction-static" in flags:
        out.note("--mem-fraction-static: set process.kv_cache_tokens; a start that asks for more than there is says so")
    if "--hisparse-config" in flags and "--enable-hisparse" not in flags:
        raise Refusal("--hisparse-config without --enable-hisparse")
    if "--enable-hisparse" in flags:
        if DECODE not in workers:
            raise Refusal("--enable-hisparse on a prefill worker: it is decode's")
        out.put(DECODE, "process.hisparse.enabled", True)
        sizes = ("top_k", "device_buffer_size", "host_to_device_ratio")
        config = _json(flags, "--hisparse-config", (*sizes, "swap_in_block_size")) if "--hisparse-config" in flags else {}
        for key in sizes:
            if key in config:
                out.put(DECODE, f"process.hisparse.{key}", config[key])
        if config.get("host_to_device_ratio", 0) > HOST_RATIO_MAX:
            out.put(DECODE, "process.hisparse.host_to_device_ratio", HOST_RATIO_MAX)
            out.note(f"host_to_device_ratio {config['host_to_device_ratio']}: taken as {HOST_RATIO_MAX}; index keys stay on "
                     "the device, and beyond about that they leave no room for buffers (docs/hisparse.md)")
    if "--disaggregation-transfer-backend" in flags:
        lanes = {"mooncake": None, "nixl": None, "mori": None, "mooncake_tcp": ["tcp"]}
        if (lane := _choice(flags, "--disaggregation-transfer-backend", lanes)) is not None:
            out.put_all(workers, "process.lanes", lane)
    if "--disaggregation-ib-device" in flags:
        out.note("--disaggregation-ib-device: no lane over RDMA yet; pages travel over tcp between hosts")


def _gateway_flags(flags, out):
    out.put(GATEWAY, "process.host", _resolved("--host", flags.get("--host", "127.0.0.1")))
    out.put(GATEWAY, "process.port", _number(flags, "--port", PORT))
    if "--served-model-name" in flags:
        out.put(GATEWAY, "process.served_model_name", _resolved("--served-model-name", flags["--served-model-name"]))
    model = flags.get("--model-path", "")
    if "--tool-call-parser" in flags:
        out.put(GATEWAY, "process.chat.format", _choice(flags, "--tool-call-parser", CHAT_FORMATS))
    elif model.endswith("Speciale"):
        out.put(GATEWAY, "process.chat.format", "v3.2-speciale")
    if "--chat-template" in flags:
        out.note("--chat-template: formats are code, the checkpoint's is taken")
    if "--allow-auto-truncate" in flags:
        out.put(GATEWAY, "process.allow_auto_truncate", True)
    if "--log-requests" in flags:
        out.put(GATEWAY, "process.log_requests", "parameters")
    if "--api-key" in flags:
        out.put(GATEWAY, "process.auth.api_keys_file", "/etc/tandem/api_keys")
        out.note("--api-key: write the key into /etc/tandem/api_keys")
    if "--reasoning-parser" in flags:
        out.note('thinking is a request\'s: {"chat_template_kwargs": {"thinking": true}}')


def _check_leftovers(flags):
    """Flags of one mode that mean nothing in this one would be lost without a word."""
    if "--disaggregation-bootstrap-port" in flags and flags.get("--disaggregation-mode") != "prefill":
        raise Refusal("--disaggregation-bootstrap-port without --disaggregation-mode prefill")


def serve(command, model_path=None, ranks_max=None):
    flags = parse(command, rows.SERVE_ROWS)
    _check_leftovers(flags)
    for name in command.environment:
        if name.startswith("SGLANG_") and name not in rows.by_name(rows.VARIABLE_ROWS):
            raise Refusal(f"unknown variable {name}: --list shows those that are known")
    out = Translation()
    mode = _choice(flags, "--disaggregation-mode", {"null": None, "prefill": PREFILL, "decode": DECODE}) if (
        "--disaggregation-mode" in flags) else None
    workers = [PREFILL, DECODE] if mode is None else [mode]
    services = workers + ([GATEWAY] if mode is None else [])
    out.put_all(services, "cluster.model_path", _model_path(flags, model_path))
    _shared(flags, command.environment, services, out)
    _ranks(flags, workers, ranks_max, out)
    _worker_flags(flags, workers, out)
    if mode is None:
        _gateway_flags(flags, out)
        out.note("one server there is a router, a prefill and a decode worker here, on one host by these files")
        for worker in workers:
            out.put(worker, "process.rpc_port", RPC_PORTS[worker])
            out.put(worker, "process.admin_port", ADMIN_PORTS[worker])
        out.put(PREFILL, "process.bootstrap_port", BOOTSTRAP_PORT)
        out.put(GATEWAY, "process.prefill_workers", [f"127.0.0.1:{RPC_PORTS[PREFILL]}"])
        out.put(GATEWAY, "process.decode_workers", [f"127.0.0.1:{RPC_PORTS[DECODE]}"])
        return out
    host = _resolved("--host", flags.get("--host", "127.0.0.1"))
    out.put(mode, "process.listen_host", host)
    out.put(mode, "process.rpc_port", _number(flags, "--port", PORT))
    out.put(mode, "process.admin_port", ADMIN_PORTS[mode])
    if mode == PREFILL:
        out.put(mode, "process.bootstrap_port", _number(flags, "--disaggregation-bootstrap-port", BOOTSTRAP_PORT))
        out.put(mode, "process.advertise_host", "127.0.0.1" if host in ("0.0.0.0", "::") else host)
        if host in ("0.0.0.0", "::"):
            out.note("process.advertise_host must be the address under which decode workers reach this host")
    if not _is_local(host):
        _guard(mode, out)
    return out


def _guard(service, out):
    out.put(service, "process.peers.token_file", TOKEN_FILE)
    out.note(f"services that reach each other over a network share a token: {TOKEN_FILE} (docs/security.md)")


def _address(text):
    return _resolved("--prefill and --decode", re.sub(r"^(https?|grpc)://", "", text).rstrip("/"))


def router(command, model_path=None):
    flags = parse(command, rows.ROUTER_ROWS)
    out = Translation()
    if model_path is None:
        model_path = "/models/DeepSeek-V3.2"
        out.note(f"the router reads the checkpoint's tokenizer: cluster.model_path is taken to be {model_path}")
    out.put(GATEWAY, "cluster.model_path", model_path)
    out.put(GATEWAY, "process.host", _resolved("--host", flags.get("--host", "0.0.0.0")))
    out.put(GATEWAY, "process.port", _number(flags, "--port", PORT))
    for flag, setting in (("--prefill", "prefill_workers"), ("--decode", "decode_workers")):
        if flag in flags:
            out.put(GATEWAY, f"process.{setting}", [_address(text) for text in flags[flag]])
    if "--service-discovery" in flags:
        for flag, setting in (("--prefill-selector", "prefill_selector"), ("--decode-selector", "decode_selector"),
                              ("--service-discovery-namespace", "namespace")):  # fmt: skip
            if flag in flags:
                out.put(GATEWAY, f"process.discovery.kubernetes.{setting}", _resolved(flag, flags[flag]))
        out.note("selectors are of EndpointSlices (deploy/k8s/README.md)")
    if "--policy" in flags:
        out.put(GATEWAY, "process.policy", _choice(flags, "--policy", POLICIES))
    for flag, setting, unit in (("--max-concurrent-requests", "max_inflight_requests", ""),
                                ("--queue-size", "max_queued_requests", ""), ("--queue-timeout-secs", "queue_timeout", "s"),
                                ("--request-timeout-secs", "request_timeout", "s"),
                                ("--shutdown-grace-period-secs", "drain_grace", "s"),
                                ("--max-payload-size", "http.body_bytes_max", "")):  # fmt: skip
        value = _number(flags, flag)
        if value is not None and value != -1:
            out.put(GATEWAY, f"process.{setting}", f"{value}{unit}" if unit else value)
    addresses = flags.get("--prefill", []) + flags.get("--decode", [])
    if any(not _is_local(_address(text).rsplit(":", 1)[0]) for text in addresses):
        _guard(GATEWAY, out)
    return out


def translate(command, model_path=None, ranks_max=None):
    if command.kind == ROUTER:
        return router(command, model_path)
    return serve(command, model_path, ranks_max)
