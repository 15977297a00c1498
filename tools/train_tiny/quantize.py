"""FP8 as the checkpoint stores it: e4m3 weights with one power-of-two scale for each 128 x 128 block."""

import torch

BLOCK = 128


def ue8m0(amax):
    """The power of two at or above amax / 448."""
    return torch.exp2(torch.ceil(torch.log2(amax.double().clamp_min(1e-4) / 448))).float()


def quantize(weight):
    """(e4m3 [out, in], scale [ceil(out / 128), ceil(in / 128)]); weight ~ e4m3 * scale."""
    rows, columns = weight.shape
    padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-columns // BLOCK) * BLOCK)
    padded[:rows, :columns] = weight.float()
    blocks = padded.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scale = ue8m0(blocks.abs().amax((1, 3)))
    q = (blocks / scale[:, None, :, None]).clamp(-448, 448).flatten(2, 3).flatten(0, 1)[:rows, :columns]
    return q.to(torch.float8_e4m3fn).contiguous(), scale.contiguous()


def dequantize(q, scale):
    full = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: q.shape[0], : q.shape[1]]
    return q.float() * full
