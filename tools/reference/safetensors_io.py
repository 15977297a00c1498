"""The safetensors container: [u64 header size][JSON header][tensors, little-endian, C order, without holes].

A Tensor keeps the bits as they are in the file (BF16 as uint16, E4M3 as uint8); values() gives numbers.
"""

import json
import struct
from dataclasses import dataclass

import numpy as np

from tools.reference import dtypes

_STORAGE = {
    "F64": np.float64, "F32": np.float32, "I64": np.int64, "I32": np.int32, "U32": np.uint32,
    "BF16": np.uint16, "F8_E4M3": np.uint8, "U8": np.uint8, "I8": np.int8, "BOOL": np.bool_,
}  # fmt: skip
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True)
class Tensor:
    dtype: str
    bits: np.ndarray

    def values(self):
        """float64 for the floating types, the array itself for the others."""
        if self.dtype == "BF16":
            return dtypes.bf16_from_bits(self.bits)
        if self.dtype == "F8_E4M3":
            return dtypes.e4m3_from_bits(self.bits)
        return self.bits.astype(np.float64) if self.dtype in ("F32", "F64") else self.bits


def bf16(x):
    return Tensor("BF16", dtypes.bf16_to_bits(x))


def e4m3(x):
    return Tensor("F8_E4M3", dtypes.e4m3_to_bits(x))


def f32(x):
    return Tensor("F32", np.asarray(x, np.float32))


def i32(x):
    return Tensor("I32", np.asarray(x, np.int32))


def u8(x):
    return Tensor("U8", np.asarray(x, np.uint8))


def write(path, tensors, metadata=None):
    """tensors: name -> Tensor. Wide types come first, so that every tensor is naturally aligned."""
    order = sorted(tensors, key=lambda name: (-tensors[name].bits.itemsize, name))
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name in order:
        t = tensors[name]
        header[name] = {
            "dtype": t.dtype,
            "shape": list(t.bits.shape),
            "data_offsets": [offset, offset + t.bits.nbytes],
        }
        offset += t.bits.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            f.write(np.ascontiguousarray(tensors[name].bits).tobytes())


def read(path):
    """name -> Tensor. Raises ValueError, naming the file and tensor, where the container is not well formed."""
    with open(path, "rb") as f:
        data = f.read()
    if len(data) < 8:
        raise ValueError(f"{path}: {len(data)} bytes are no safetensors file")
    (size,) = struct.unpack_from("<Q", data)
    if size > min(_MAX_HEADER_BYTES, len(data) - 8) or data[8:9] != b"{":
        raise ValueError(f"{path}: bad header of {size} bytes")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + size :]
    tensors, end = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        storage = np.dtype(_STORAGE[entry["dtype"]])
        first, last = entry["data_offsets"]
        if first != end or last - first != storage.itemsize * int(np.prod(entry["shape"], dtype=np.int64)):
            raise ValueError(f"{path}: tensor {name} has offsets [{first}, {last}) where it should start at {end}")
        bits = np.frombuffer(body[first:last], storage.newbyteorder("<")).reshape(entry["shape"])
        tensors[name] = Tensor(entry["dtype"], bits.astype(storage, copy=False))
        end = last
    if end != len(body):
        raise ValueError(f"{path}: {len(body) - end} bytes after the last tensor")
    return tensors
