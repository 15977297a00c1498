"""A damaged checkpoint stops a worker's start with one clear line that names the file and, where it is one, the tensor.

Every fault is made in a copy of a good checkpoint and given to the real binary.
"""

import json
import os
import resource
import shutil
import struct
import subprocess

import pytest

from tests.e2e.cluster import HOST, START_SECONDS, binary, make_checkpoint

INDEX = "model.safetensors.index.json"
SHARD_1, SHARD_2 = "model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("good") / "v32-micro", "v32-micro")


@pytest.fixture
def folder(good, tmp_path):
    return shutil.copytree(good, tmp_path / "checkpoint")


def start(folder, role="decode_worker"):
    """(exit code, last line of stderr) of a worker that is to serve that folder and must not get to it."""
    command = [binary(f"{role}/{role}"), f"--set=cluster.model_path={folder}", "--set=process.kv_cache_tokens=1024"]
    command += [f"--set=process.listen_host={HOST}", f"--set=process.admin_host={HOST}"]
    command += ["--set=process.rpc_port=0", "--set=process.admin_port=0"]
    if role == "prefill_worker":
        command.append("--set=process.bootstrap_port=0")
    result = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    lines = [line for line in result.stderr.splitlines() if " WARNING " not in line and " INFO " not in line]
    assert len(lines) == 1, f"one line, not {result.stderr}"
    return result.returncode, lines[0]


def read_shard(path):
    """(header, data bytes) of a safetensors file."""
    raw = path.read_bytes()
    (num_bytes,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + num_bytes]), raw[8 + num_bytes :]


def write_shard(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def edit_config(folder, edit):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    path.write_text(json.dumps(config))


def shard_of(folder, tensor):
    return json.loads((folder / INDEX).read_text())["weight_map"][tensor]


def edit_entry(folder, tensor, edit):
    """Changes a tensor's entry in the header of its shard, and returns the shard's name."""
    name = shard_of(folder, tensor)
    header, data = read_shard(folder / name)
    edit(header[tensor])
    write_shard(folder / name, header, data)
    return name


def absent_shard(folder):
    name = shard_of(folder, "model.norm.weight")
    (folder / name).unlink()
    return [INDEX, name, "which is absent", "tensor '"]


def absent_index_and_a_copy(folder):
    (folder / INDEX).unlink()
    shutil.copy(folder / SHARD_2, folder / "model-00003-of-000003.safetensors")
    return ["tensor '", SHARD_2, "model-00003-of-000003.safetensors"]


def absent_tensor(folder):
    name = shard_of(folder, "model.norm.weight")
    header, data = read_shard(folder / name)
    begin, end = header.pop("model.norm.weight")["data_offsets"]
    for entry in header.values():
        if entry.get("data_offsets", [0])[0] >= end:
            entry["data_offsets"] = [offset - (end - begin) for offset in entry["data_offsets"]]
    write_shard(folder / name, header, data[:begin] + data[end:])
    return [name, "tensor 'model.norm.weight' is missing", "does not hold it"]


def wrong_shape(folder):
    def edit(entry):
        entry["shape"] = [entry["shape"][0] // 2, 2]

    return [edit_entry(folder, "model.norm.weight", edit), "tensor 'model.norm.weight' is BF16 [64, 2]", "[128]"]


def wrong_dtype(folder):
    def edit(entry):
        entry["dtype"] = "F16"

    return [edit_entry(folder, "model.norm.weight", edit), "tensor 'model.norm.weight' is F16", "expected BF16"]


def unknown_dtype(folder):
    def edit(entry):
        entry["dtype"] = "Q4_K"

    return [edit_entry(folder, "model.norm.weight", edit), "tensor 'model.norm.weight'", "dtype 'Q4_K' is not known"]


def truncated_data(folder):
    os.truncate(folder / SHARD_2, (folder / SHARD_2).stat().st_size - 100)
    return [SHARD_2, "tensor '", "ends at byte"]


def truncated_header(folder):
    os.truncate(folder / SHARD_2, 200)
    return [SHARD_2, "cut short"]


def empty_shard(folder):
    (folder / SHARD_2).write_bytes(b"")
    return [SHARD_2, "too short"]


def overlapping_offsets(folder):
    header, data = read_shard(folder / SHARD_2)
    names = sorted((k for k in header if k != "__metadata__"), key=lambda k: header[k]["data_offsets"][0])
    moved = header[names[1]]["data_offsets"]
    header[names[1]]["data_offsets"] = [moved[0] - 4, moved[1] - 4]
    write_shard(folder / SHARD_2, header, data)
    return [SHARD_2, f"tensor '{names[1]}'", "inside the tensor before it"]


def header_of_4_gigabytes(folder):
    path = folder / SHARD_2
    with open(path, "r+b") as file:
        file.write(struct.pack("<Q", 1 << 32))
    os.truncate(path, (1 << 32) + 4096)  # sparse
    return [SHARD_2, "4294967296", "limit 100000000"]


def header_not_json(folder):
    path = folder / SHARD_2
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + b"{" + b"x" * 40 + raw[49:])
    return [SHARD_2, "not JSON"]


def index_not_json(folder):
    (folder / INDEX).write_text("{")
    return [INDEX, "not JSON"]


def index_that_leaves_the_folder(folder):
    text = (folder / INDEX).read_text()
    (folder / INDEX).write_text(text.replace(SHARD_2, "../" + SHARD_2))
    return [INDEX, "lies outside the folder"]


def config_absent(folder):
    (folder / "config.json").unlink()
    return ["config.json"]


def config_not_json(folder):
    (folder / "config.json").write_text("model_type: deepseek_v32\n")
    return ["config.json", "not JSON"]


def config_with_more_layers_than_tensors(folder):
    def edit(config):
        config["num_hidden_layers"] += 2

    edit_config(folder, edit)
    return ["tensor 'model.layers.", "is missing"]


def config_of_another_width(folder):
    def edit(config):
        config["hidden_size"] *= 2

    edit_config(folder, edit)
    return [".safetensors", "tensor '", "expected", "256"]


def config_of_another_vocabulary(folder):
    def edit(config):
        config["vocab_size"] += 64

    edit_config(folder, edit)
    return [".safetensors", "tensor '", "1088"]


def another_model(folder):
    def edit(config):
        config["model_type"] = "qwen3_moe"
        config["architectures"] = ["Qwen3MoeForCausalLM"]

    edit_config(folder, edit)
    return ["config.json", "not a DeepSeek-V3.2 model", "qwen3_moe", "Qwen3MoeForCausalLM"]


def deepseek_v3(folder):
    def edit(config):
        config["model_type"] = "deepseek_v3"
        config["architectures"] = ["DeepseekV3ForCausalLM"]

    edit_config(folder, edit)
    return ["config.json", "not a DeepSeek-V3.2 model", "deepseek_v3", "DeepseekV3ForCausalLM"]


FAULTS = [
    absent_shard,
    absent_index_and_a_copy,
    absent_tensor,
    wrong_shape,
    wrong_dtype,
    unknown_dtype,
    truncated_data,
    truncated_header,
    empty_shard,
    overlapping_offsets,
    header_of_4_gigabytes,
    header_not_json,
    index_not_json,
    index_that_leaves_the_folder,
    config_absent,
    config_not_json,
    config_with_more_layers_than_tensors,
    config_of_another_width,
    config_of_another_vocabulary,
    another_model,
    deepseek_v3,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_one_line_that_names_its_place(folder, fault):
    expected = fault(folder)
    code, line = start(folder)
    assert code not in (0, -6, -11), line
    for words in expected:
        assert words in line, f"{words!r} is not in: {line}"
    assert str(folder) in line


def test_a_prefill_worker_says_the_same(folder):
    expected = truncated_data(folder)
    code, line = start(folder, "prefill_worker")
    assert code not in (0, -6, -11), line
    assert all(words in line for words in expected), line


def test_an_extra_shard_beside_a_truthful_index_is_told_and_not_read(folder, fresh_cluster):
    """What another release has left behind, even a broken file, must not change what is served."""
    (folder / "model-00007-of-000163.safetensors").write_bytes(b"left over")
    with fresh_cluster(prefill_checkpoint=folder) as cluster:
        assert "model-00007-of-000163.safetensors is not named by" in cluster.prefill.log.read_text()
        assert cluster.openai().models.list().data  # usable: both sides have the same model


def test_opening_maps_the_weights_instead_of_reading_them(folder):
    """Data that no tensor of this model needs costs no memory: 8 GB of it in a file that the index names."""
    index = json.loads((folder / INDEX).read_text())
    num_bytes = 8 << 30
    extra = folder / "model-00003-of-000003.safetensors"
    entry = {"dtype": "U8", "shape": [num_bytes], "data_offsets": [0, num_bytes]}
    write_shard(extra, {"model.unused.weight": entry}, b"")
    os.truncate(extra, extra.stat().st_size + num_bytes)  # sparse
    index["weight_map"]["model.unused.weight"] = extra.name
    (folder / INDEX).write_text(json.dumps(index))
    command = [binary("tools/generate/generate"), f"--model_path={folder}", "--max_new_tokens=2", "--prompt_ids=1,2,3"]
    limit = 2 << 30

    def limited():
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # private writable memory; mappings do not count

    result = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, preexec_fn=limited)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.split(",")) == 2
