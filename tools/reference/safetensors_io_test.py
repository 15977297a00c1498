"""The container: what is written comes back, and a broken file is refused by name."""

import json
import struct

import numpy as np
import pytest

from tools.reference import safetensors_io as io


def sample():
    return {
        "a": io.bf16(np.array([[1.0, -2.5], [0.0, 3e38]]) * [[1, 1], [1, 0]]),
        "b": io.e4m3(np.array([448.0, -0.0, 2.0**-9])),
        "c": io.f32(np.pi),
        "d": io.i32([-1, 7]),
        "e": io.u8(np.zeros((0, 3))),
    }


def test_tensors_come_back_with_their_bits_shapes_and_types(tmp_path):
    io.write(tmp_path / "x.safetensors", sample())
    back = io.read(tmp_path / "x.safetensors")
    assert back.keys() == sample().keys()
    for name, tensor in sample().items():
        assert back[name].dtype == tensor.dtype
        assert back[name].bits.shape == tensor.bits.shape
        np.testing.assert_array_equal(back[name].bits, tensor.bits)


def test_every_tensor_is_naturally_aligned_in_the_file(tmp_path):
    path = tmp_path / "x.safetensors"
    io.write(path, sample(), {"format": "pt"})
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    width = {"F32": 4, "I32": 4, "BF16": 2, "F8_E4M3": 1, "U8": 1}
    for entry in header.values():
        assert (8 + size + entry["data_offsets"][0]) % width[entry["dtype"]] == 0


def write_raw(path, header, body):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def entry(first, last):
    return {"dtype": "U8", "shape": [last - first], "data_offsets": [first, last]}


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        ({"a": entry(0, 2), "b": entry(3, 4)}, b"1234", "tensor b"),
        ({"a": entry(0, 3), "b": entry(2, 4)}, b"1234", "tensor b"),
        ({"a": entry(0, 2)}, b"1234", "2 bytes after"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234", "tensor a"),
    ],
    ids=["hole", "overlap", "surplus", "size"],
)
def test_a_malformed_container_is_refused(tmp_path, header, body, message):
    write_raw(tmp_path / "x", header, body)
    with pytest.raises(ValueError, match=message):
        io.read(tmp_path / "x")


def test_a_header_longer_than_the_file_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(struct.pack("<Q", 1 << 40) + b"{}")
    with pytest.raises(ValueError, match="bad header"):
        io.read(tmp_path / "x")
