"""Every command of the guides becomes files that our binaries accept; what has no translation says so."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import binary
from tools.translate_args import commands, documents_commands, recommend, rows, translate, translate_args

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = documents_commands.DEFINITIONS
ALL = documents_commands.SERVERS | {"router": documents_commands.ROUTER}


def translated(text, definitions=DEFINITIONS, **options):
    (command,) = commands.read(text, definitions.items())
    return translate.translate(command, **options)


def validate(folder, translation):
    for service, text in translate_args.texts_of(translation).items():
        file = folder / f"{service}.yaml"
        file.write_text(text)
        done = subprocess.run(
            [str(binary(f"{service}/{service}")), "--config", str(file), "--validate_only"], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{done.stderr}\n{text}"


@pytest.mark.parametrize("name", ALL)
def test_what_a_guides_command_becomes_is_accepted_by_our_services(name, tmp_path):
    validate(tmp_path, translated(ALL[name]))


@pytest.mark.parametrize("more", documents_commands.NAMED_FLAGS)
def test_what_the_guides_name_beside_commands_is_accepted(more, tmp_path):
    validate(tmp_path, translated(f"{documents_commands.SERVERS['quick start']} {more}"))


def test_the_pair_that_prefills_and_decodes_apart(tmp_path):
    prefill = translated(documents_commands.SERVERS["prefill"]).configs
    decode = translated(documents_commands.SERVERS["decode"]).configs
    router = translated(documents_commands.ROUTER).configs
    assert list(prefill) == ["prefill_worker"] and list(decode) == ["decode_worker"] and list(router) == ["router"]
    assert prefill["prefill_worker"]["process"] | {"peers": None} == {
        "data_parallel_size": 8, "expert_parallel_size": 8, "listen_host": "10.0.0.7", "rpc_port": 30000,
        "admin_port": 9101, "bootstrap_port": 8998, "advertise_host": "10.0.0.7", "peers": None,
    }  # fmt: skip
    assert router["router"]["process"]["prefill_workers"] == ["10.0.0.7:30000"]
    assert router["router"]["process"]["decode_workers"] == ["10.0.0.8:30000"]
    assert router["router"]["process"]["peers"] == decode["decode_worker"]["process"]["peers"]


def test_drafts_length_and_layouts():
    drafts = translated(documents_commands.SERVERS["two hosts, dp 2"])
    for service in ("prefill_worker", "decode_worker", "router"):
        assert drafts.configs[service]["cluster"]["speculative"] == {"num_steps": 2, "num_draft_tokens": 3}
        assert drafts.configs[service]["cluster"]["context_length"] == 65536
    assert drafts.configs["decode_worker"]["process"]["data_parallel_size"] == 16
    assert any("--tp 16 --dp 2" in note for note in drafts.notes) and any("--nnodes 2" in note for note in drafts.notes)
    cp = translated(documents_commands.SERVERS["context parallel"]).configs
    assert cp["prefill_worker"]["process"]["context_parallel_size"] == 8
    assert "context_parallel_size" not in cp["decode_worker"]["process"]
    assert cp["decode_worker"]["process"]["tensor_parallel_size"] == 8
    small = translated(documents_commands.SERVERS["context parallel"], ranks_max=2)
    assert small.configs["prefill_worker"]["process"]["context_parallel_size"] == 2


def test_a_variable_of_the_environment_and_one_that_is_open():
    text = "export SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD=4096\nsglang serve --model-path /m --port $PORT"
    out = translated(text)
    assert out.configs["decode_worker"]["cluster"]["dense_attention_max_context"] == 4096
    with pytest.raises(commands.Refusal, match=r"--port is \$PORT and \$PORT has no value: --define PORT=VALUE"):
        translated(text, {})
    translated("sglang serve --model-path /m --node-rank $RANK", {})  # nothing of ours needs it


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("--frobnicate 3", "unknown flag --frobnicate of sglang serve"),
        ("--tp", "--tp needs a value"),
        ("--tp eight", "--tp is eight, a number is wanted"),
        ("--tp 8 --tp-size 4", "--tp is given twice, as 8 and as 4"),
        ("--enable-metrics=yes", "--enable-metrics takes no value"),
        ("--enable-prefill-cp --cp-strategy zigzag --tp 8", "--cp-strategy is zigzag: only interleave"),
        ("--enable-prefill-cp --tp 8 --dp 8 --enable-dp-attention --attn-cp-size 8", "--enable-prefill-cp with --dp 8"),
        ("--attn-cp-size 8", "--attn-cp-size without --enable-prefill-cp"),
        ("--tp 128", "128 ranks, a worker has 64 at most"),
        ("--tp 8 --dp 3 --enable-dp-attention", "--tp 8 is no multiple of --dp 3"),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 4", "must be 1"),
        ("--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-num-draft-tokens 3", "must be .* = 4"),
        ("--speculative-num-steps 3", "without --speculative-algorithm"),
        ("--speculative-algorithm EAGLE", "without --speculative-num-steps"),
        ("--kv-cache-dtype fp8_e5m2", "--kv-cache-dtype is fp8_e5m2, known are"),
        ("--json-model-override-args '{\"num_hidden_layers\": 4}'", "has the key num_hidden_layers, known are"),
        ("--json-model-override-args '{'", "is no JSON"),
        ("--hisparse-config '{}'", "without --enable-hisparse"),
        ("--disaggregation-mode prefill --enable-hisparse", "it is decode's"),
        ("--disaggregation-bootstrap-port 1", "without --disaggregation-mode prefill"),
        ("--tool-call-parser qwen", "--tool-call-parser is qwen, known are deepseekv31, deepseekv32"),
    ],
)
def test_what_cannot_be_is_refused_in_words(more, why, capsys):
    assert translate_args.main([f"sglang serve --model-path /m {more}"]) == 2
    said = capsys.readouterr().err
    assert re.search(why, said) and said.count("\n") == 1


def test_other_programs_unknown_variables_and_clients(capsys):
    assert translate_args.main(["vllm serve"]) == 2 and "no command of SGLang's" in capsys.readouterr().err
    assert translate_args.main(["python -m vllm.serve"]) == 2 and "python runs vllm.serve" in capsys.readouterr().err
    assert translate_args.main(["SGLANG_NEW=1 sglang serve --model-path /m"]) == 2
    assert "unknown variable SGLANG_NEW" in capsys.readouterr().err
    assert translate_args.main(["sglang serve --tp 8"]) == 2 and "no --model-path" in capsys.readouterr().err
    for client in documents_commands.CLIENTS:
        assert translate_args.main([client]) == 0
        assert "a client" in capsys.readouterr().out


def test_words_or_one_text_or_a_script_give_the_same_files(tmp_path, capsys):
    text = documents_commands.SERVERS["latency"]
    assert translate_args.main([text]) == 0
    whole = capsys.readouterr().out
    assert translate_args.main(["--", *shlex.split(text)]) == 0 and capsys.readouterr().out == whole
    both = f"{text.replace(' --', chr(92) + chr(10) + ' --')}  # comment\n{documents_commands.ROUTER}\n"
    defined = [word for name, value in DEFINITIONS.items() for word in ("--define", f"{name}={value}")]
    assert translate_args.main([*defined, "--out", str(tmp_path), both]) == 0
    assert yaml.safe_load((tmp_path / "0" / "router.yaml").read_text())["process"]["port"] == 30000
    assert "prefill_workers" in yaml.safe_load((tmp_path / "1" / "router.yaml").read_text())["process"]


@pytest.mark.parametrize("hardware", ["h200", "b200", "cpu"])
@pytest.mark.parametrize("strategy", ["tp", "tp,dp,ep", "tp,mtp", "tp,dp,ep,mtp", "tp,cp"])
def test_a_choice_of_hardware_and_aims_is_a_command_and_an_overlay(hardware, strategy, tmp_path):
    for variant in recommend.VARIANTS:
        for gpus in (None, 16):
            chosen = recommend.recommend(hardware, gpus, variant, strategy.split(","), True)
            assert (ROOT / chosen.overlay / "kustomization.yaml").exists()
            translation = translate.translate(chosen.command)
            assert ("speculative" in translation.configs["decode_worker"]["cluster"]) == ("mtp" in strategy)
            assert ("context_parallel_size" in translation.configs["prefill_worker"]["process"]) == ("cp" in strategy)
    validate(tmp_path, translation)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--hardware tpu", "--hardware is tpu, known are"),
        ("--hardware mi300x", "none for ROCm"),
        ("--hardware h200 --variant nvfp4", "workers refuse NVFP4 checkpoints"),
        ("--hardware h200 --variant v4", "--variant is v4, known are"),
        ("--hardware h200 --strategy dp,cp", "take one of the two"),
        ("--hardware h200 --strategy fast", "--strategy has fast, known are"),
        ("--hardware h200 --gpus 3", "--gpus is 3, allowed are"),
        ("--hardware h200 --variant v3.2-speciale", "it always thinks"),
        ("--hardware h200 sglang serve", "one says what the other does"),
    ],
)
def test_a_choice_that_nothing_serves_is_refused(words, why, capsys):
    assert translate_args.main(words.split()) == 2
    assert why in capsys.readouterr().err


def test_the_page_of_rows_is_what_the_tool_knows():
    page = (ROOT / "docs" / "translate_args.md").read_text()
    assert page.endswith(rows.markdown()), "write what translate_args.py --list prints at the end of docs/translate_args.md"


def test_every_row_names_a_setting_of_ours_or_why_there_is_none():
    configuration = (ROOT / "docs" / "configuration.md").read_text()
    for row in rows.SERVE_ROWS + rows.ROUTER_ROWS + rows.VARIABLE_ROWS:
        assert row.ours or row.why, row.name
        for setting in re.findall(r"(?:cluster|process)\.[\w.]+", row.ours):
            assert re.search(rf"`{re.escape(setting)}[`.]", configuration), f"{row.name}: {setting} is no setting"


def test_every_flag_of_the_guides_has_a_row():
    shared = ROOT.parent / "shared" / "documents"
    texts = [file.read_text() for file in shared.glob("*.txt")] if shared.is_dir() else list(ALL.values())
    known = rows.by_name(rows.SERVE_ROWS) | rows.by_name(rows.ROUTER_ROWS)
    for text in texts:
        for start in re.finditer(r"(sglang serve|sglang\.launch_server|launch_router|echo serve)\b", text):
            # As far as lines go on with flags; the pages stand in a frame of bars.
            for place, line in enumerate(text[start.end() :].splitlines()):
                line = line.strip("| ")
                if place > 0 and line and not line.startswith(("--", "$")):
                    break
                for flag in re.findall(r"(?<!\S)--[a-z][a-z0-9-]+", line):
                    assert flag in known, flag
