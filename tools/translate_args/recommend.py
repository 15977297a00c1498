"""Which of SGLang's flags a choice of hardware, model and aims stands for: the cookbook's selector as a function.

The answer is a command as one would type it there, so that whatever is recommended goes through the same translation as
a command that somebody brings.
"""

from dataclasses import dataclass

from tools.translate_args.commands import SERVE, Command, Refusal

GPUS = {"h200": 8, "b200": 8, "mi300x": 8, "mi355x": 8, "cpu": 2}  # of one host; cpu: ranks
VARIANTS = {
    "v3.2": ("deepseek-ai/DeepSeek-V3.2", "deepseekv32"),
    "v3.2-exp": ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseekv31"),
    "v3.2-speciale": ("deepseek-ai/DeepSeek-V3.2-Speciale", None),  # calls no tools
}
REFUSED_VARIANTS = {"nvfp4": "NVFP4", "mxfp4": "MXFP4"}
STRATEGIES = ("tp", "dp", "ep", "mtp", "cp")
OVERLAYS = {
    "cpu": "deploy/k8s/overlays/cpu-demo",
    1: "deploy/k8s/overlays/h200-single-node",
    2: "deploy/k8s/overlays/h200-multi-node",
}


@dataclass(frozen=True)
class Recommendation:
    command: Command
    overlay: str
    notes: tuple


def recommend(hardware, gpus, variant, strategies, thinking):
    """gpus: of all hosts together; None: one host's. Refusal where nothing of ours serves it."""
    if hardware not in GPUS:
        raise Refusal(f"--hardware is {hardware}, known are {', '.join(GPUS)}")
    if hardware.startswith("mi"):
        raise Refusal(f"--hardware {hardware}: there is a CUDA backend (Hopper) and a CPU backend, none for ROCm")
    if variant in REFUSED_VARIANTS:
        raise Refusal(f"--variant {variant}: workers refuse {REFUSED_VARIANTS[variant]} checkpoints; take v3.2 in FP8")
    if variant not in VARIANTS:
        raise Refusal(f"--variant is {variant}, known are {', '.join(VARIANTS)}")
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise Refusal(f"--strategy has {strategy}, known are {', '.join(STRATEGIES)}")
    if "dp" in strategies and "cp" in strategies:
        raise Refusal("--strategy dp,cp: a worker's ranks divide its work in one way; take one of the two")
    gpus = GPUS[hardware] if gpus is None else gpus
    if gpus < 1 or gpus % 2 != 0 and gpus != 1:
        raise Refusal(f"--gpus is {gpus}, allowed are 1 and even numbers")
    notes = []
    if hardware == "b200":
        notes.append("b200: kernels are compiled for Hopper (sm_90a) and have not run on Blackwell")
    hosts = max(1, -(-gpus // GPUS[hardware]))
    ranks = min(gpus, GPUS[hardware])
    if hosts > 1:
        notes.append(f"{gpus} GPUs are {hosts} hosts: start prefill workers on some and decode workers on the others, "
                     f"{ranks} ranks each; a worker does not go over two hosts")
    model, tool_parser = VARIANTS[variant]
    arguments = ["--model-path", model, "--tp", str(ranks)]
    if "dp" in strategies and ranks > 1:
        arguments += ["--dp", str(ranks), "--enable-dp-attention"]
    if "ep" in strategies and ranks > 1:
        arguments += ["--ep", str(ranks)]
    if "cp" in strategies and ranks > 1:
        arguments += ["--enable-prefill-cp", "--attn-cp-size", str(ranks), "--cp-strategy", "interleave"]
    if "mtp" in strategies:
        arguments += ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1",
                      "--speculative-num-draft-tokens", "4"]  # fmt: skip
    if tool_parser is not None:
        arguments += ["--tool-call-parser", tool_parser]
    if thinking:
        arguments += ["--reasoning-parser", "deepseek-v3"]
    if variant == "v3.2-speciale" and not thinking:
        raise Refusal("--variant v3.2-speciale without --thinking: it always thinks")
    arguments += ["--host", "0.0.0.0", "--port", "30000"]
    overlay = OVERLAYS["cpu" if hardware == "cpu" else min(hosts, 2)]
    return Recommendation(Command(SERVE, arguments), overlay, tuple(notes))
