// TopK by radix selection: four histograms of 256 bins find the k-th largest key, a last pass emits positions.
// Everything is integer comparison, so the answer is exact; O(context) per row, no memory but one histogram.
// Tested by topk_test.cc.
#include <bit>
#include <cstring>
#include <limits>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {
namespace {

// A larger key is a larger logit. -0 equals +0, NaN equals -inf.
uint32_t KeyOf(float logit) {
  if (logit != logit) logit = -std::numeric_limits<float>::infinity();
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

struct Threshold {
  uint32_t key;           // of the k-th largest logit
  int64_t num_of_equals;  // how many logits of exactly that key belong to the k largest
};

// The k-th largest key among count logits, 1 <= k <= count.
Threshold FindThreshold(const float* logits, int64_t count, int64_t k) {
  uint32_t prefix = 0;
  uint32_t mask = 0;
  int64_t remaining = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int64_t histogram[256] = {};
    for (int64_t s = 0; s < count; ++s) {
      const uint32_t key = KeyOf(logits[s]);
      if ((key & mask) == prefix) ++histogram[(key >> shift) & 0xffu];
    }
    uint32_t bin = 255;
    while (histogram[bin] < remaining) remaining -= histogram[bin--];
    prefix |= bin << shift;
    mask |= 0xffu << shift;
  }
  return {prefix, remaining};
}

void SelectRow(const float* logits, int64_t context, int64_t k, int32_t* indices, int32_t* nan_count) {
  const Threshold threshold = FindThreshold(logits, context, k);
  int64_t equals = threshold.num_of_equals;
  int64_t found = 0;
  int32_t nans = 0;
  for (int64_t s = 0; s < context; ++s) {
    const uint32_t key = KeyOf(logits[s]);
    nans += logits[s] != logits[s];
    const bool is_chosen = key > threshold.key || (key == threshold.key && equals-- > 0);
    if (is_chosen) indices[found++] = static_cast<int32_t>(s);
  }
  *nan_count = nans;
}

}  // namespace

absl::Status TopK(const TopKArgs& args) {
  const auto [num_rows, k] = args.indices.shape;
  OpBorder border("TopK");
  border.Require(k >= 1, "k", k, "at least 1")
      .Shape("logits", args.logits, {num_rows, args.logits.shape[1]})
      .Shape("context_length", args.context_length, {num_rows})
      .Shape("indices", args.indices, {num_rows, k})
      .Shape("nan_count", args.nan_count, {num_rows})
      .Ids("context_length", args.context_length, 1, std::numeric_limits<int32_t>::max());
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t context = args.context_length.data[row];
    border.Require(context <= k || context <= args.logits.shape[1], "logits' width", args.logits.shape[1],
                   "at least the longest context above k");
  }
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t context = args.context_length.data[row];
    int32_t* indices = args.indices.Row(row);
    if (context > k) {
      SelectRow(args.logits.Row(row), context, k, indices, &args.nan_count.data[row]);
      continue;
    }
    for (int64_t j = 0; j < k; ++j) indices[j] = j < context ? static_cast<int32_t>(j) : -1;
    args.nan_count.data[row] = 0;
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels
