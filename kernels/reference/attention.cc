#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/flush_subnormals.h"
#include "kernels/paged_rows.h"
#include "kernels/portable_math.h"
#include "kernels/reference/dot.h"
#include "kernels/reference/ops.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::reference {
namespace {

constexpr int kLatentDim = kvcache::kLatentDim;
constexpr int kBlock = 64;

// A record as the BF16 values that attention computes with: latent dims, then the rotary key.
std::vector<float> KeyAt(const SparseMlaArgs& args, int64_t row, int32_t position) {
  const auto [page, slot] = SlotOf(args.rows, row, position);
  const uint8_t* record = args.latent_pages.Row(page) + slot * kvcache::LatentRecordBytes(args.kv_cache_dtype);
  std::vector<float> key;
  for (int d = 0; d < kLatentDim; ++d) {
    if (args.kv_cache_dtype == kvcache::KvCacheDtype::kBfloat16) {
      Bf16 value;
      std::memcpy(&value, record + d * 2, sizeof(value));
      key.push_back(ToFloat(value));
      continue;
    }
    float scale;
    std::memcpy(&scale, record + kvcache::kLatentScaleOffset + d / kvcache::kLatentTile * 4, sizeof(scale));
    key.push_back(ToFloat(ToBf16(ToFloat(E4m3{record[d]}) * scale)));
  }
  for (int d = 0; d < kvcache::kRopeDim; ++d) {
    Bf16 value;
    std::memcpy(&value, record + kvcache::LatentRopeOffset(args.kv_cache_dtype) + d * 2, sizeof(value));
    key.push_back(ToFloat(value));
  }
  return key;
}

void AttendHead(const SparseMlaArgs& args, int64_t row, int64_t head, const std::vector<std::vector<float>>& keys) {
  std::vector<float> accumulators(kLatentDim, 0.0f);
  float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
  const auto query = [&](int64_t d) {
    return ToFloat(d < kLatentDim ? args.q_latent.Row(row, head)[d] : args.q_rope.Row(row, head)[d - kLatentDim]);
  };
  for (size_t first = 0; first < keys.size(); first += kBlock) {
    const size_t count = std::min<size_t>(kBlock, keys.size() - first);
    float scores[kBlock], weights[kBlock];
    float new_maximum = maximum;
    for (size_t j = 0; j < count; ++j) {
      const std::vector<float>& key = keys[first + j];
      scores[j] =
          DotInLanes(static_cast<int64_t>(key.size()), query, [&](int64_t d) { return key[d]; }) * args.softmax_scale;
      new_maximum = std::max(new_maximum, scores[j]);
    }
    float lanes[16] = {};
    for (size_t j = 0; j < count; ++j) {
      weights[j] = Exp(scores[j] - new_maximum);
      lanes[j % 16] += weights[j];
    }
    const float factor = Exp(maximum - new_maximum);
    sum = sum * factor + SumOfLanes(lanes);
    maximum = new_maximum;
    for (int d = 0; d < kLatentDim; ++d) {
      float value = accumulators[d] * factor;
      for (size_t j = 0; j < count; ++j) value = std::fma(weights[j], keys[first + j][d], value);
      accumulators[d] = value;
    }
  }
  for (int d = 0; d < kLatentDim; ++d) {
    args.out.Row(row, head)[d] = ToBf16(accumulators[d] / (keys.empty() ? 1.0f : sum));
  }
}

}  // namespace

void SparseMla(const SparseMlaArgs& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.indices.shape[0]; ++row) {
    std::vector<std::vector<float>> keys;
    for (int64_t j = 0; j < args.indices.shape[1] && args.indices.Row(row)[j] >= 0; ++j) {
      keys.push_back(KeyAt(args, row, args.indices.Row(row)[j]));
    }
    for (int64_t head = 0; head < args.q_latent.shape[1]; ++head) AttendHead(args, row, head, keys);
  }
}

void MlaAbsorbQuery(const MlaAbsorbQueryArgs& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.q_nope.shape[0]; ++row) {
    for (int64_t head = 0; head < args.q_nope.shape[1]; ++head) {
      for (int64_t c = 0; c < kLatentDim; ++c) {
        float sum = 0;
        for (int64_t d = 0; d < args.q_nope.shape[2]; d += 2) {
          for (int64_t nope : {d + 1, d}) {
            sum = std::fma(ToFloat(args.q_nope.Row(row, head)[nope]), ToFloat(args.w_uk.Row(head, nope)[c]), sum);
          }
        }
        args.q_latent.Row(row, head)[c] = ToBf16(sum);
      }
    }
  }
}

void MlaUnabsorbOutput(const MlaUnabsorbOutputArgs& args) {
  const FlushSubnormals flush;
  for (int64_t row = 0; row < args.latent_out.shape[0]; ++row) {
    for (int64_t head = 0; head < args.latent_out.shape[1]; ++head) {
      for (int64_t v = 0; v < args.w_uv.shape[1]; ++v) {
        args.out.Row(row, head)[v] = ToBf16(DotInLanes(
            kLatentDim, [&](int64_t c) { return ToFloat(args.latent_out.Row(row, head)[c]); },
            [&](int64_t c) { return ToFloat(args.w_uv.Row(head, v)[c]); }));
      }
    }
  }
}

}  // namespace tandem::kernels::reference
