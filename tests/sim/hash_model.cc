#include "tests/sim/hash_model.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kvcache/kv_layout.h"

namespace tandem::sim {
namespace {

using kvcache::RecordKind;

// Steele's finaliser (splitmix64): every input bit reaches every output bit.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

void Expand(std::byte* target, size_t num_bytes, uint64_t state) {
  for (size_t i = 0; i < num_bytes; i += sizeof(uint32_t)) {
    const uint32_t word = static_cast<uint32_t>(Mix(state + i));
    std::memcpy(target + i, &word, sizeof(word));
  }
}

// Order matters: every word multiplies what came before it. Four lanes, because one multiply a word is latency-bound.
uint64_t Fold(const std::byte* source, size_t num_bytes, uint64_t state) {
  constexpr uint64_t kMultiplier = 0x9FB21C651E98DF25;
  uint64_t lanes[4] = {state, state ^ 0x517CC1B727220A95, ~state, state + num_bytes};
  size_t i = 0;
  for (; i + 32 <= num_bytes; i += 32) {
    for (int lane = 0; lane < 4; ++lane) {
      uint64_t word;
      std::memcpy(&word, source + i + lane * 8, sizeof(word));
      lanes[lane] = (lanes[lane] ^ word) * kMultiplier;
      lanes[lane] ^= lanes[lane] >> 29;
    }
  }
  for (; i < num_bytes; i += sizeof(uint32_t)) {
    uint32_t word;
    std::memcpy(&word, source + i, sizeof(word));
    lanes[0] = (lanes[0] ^ word) * kMultiplier;
    lanes[0] ^= lanes[0] >> 29;
  }
  return Mix(lanes[0] ^ Mix(lanes[1] ^ Mix(lanes[2] ^ Mix(lanes[3]))));
}

}  // namespace

absl::Status HashModel::Validate(const model::RowBatch& batch, absl::Span<float> logits) const {
  for (const int32_t token : batch.tokens) {
    if (token < 0 || token >= options_.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", token, " is outside the vocabulary of ", options_.vocab_size));
    }
  }
  int64_t num_rows = 0;
  for (const model::Segment& segment : batch.segments) {
    if (segment.row_begin != num_rows) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment begins at row ", segment.row_begin, ", expected ", num_rows));
    }
    num_rows += segment.num_rows;
    const int num_pages = kvcache::PagesForTokens(segment.first_position + segment.num_rows);
    if (num_pages > static_cast<int>(segment.page_table.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("segment needs ", num_pages, " pages, its table has ", segment.page_table.size()));
    }
    for (const int32_t page : segment.page_table) {
      if (page < 0 || page >= pool_.layout().num_pages) {
        return absl::InvalidArgumentError(
            absl::StrCat("page ", page, " is outside the pool of ", pool_.layout().num_pages));
      }
    }
  }
  if (num_rows != static_cast<int64_t>(batch.tokens.size())) {
    return absl::InvalidArgumentError(absl::StrCat(batch.tokens.size(), " tokens for segments of ", num_rows, " rows"));
  }
  if (logits.size() != batch.logits_rows.size() * options_.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("logits have room for ", logits.size(), " values, wanted ",
                                                   batch.logits_rows.size(), " x ", options_.vocab_size));
  }
  return absl::OkStatus();
}

void HashModel::WriteRecords(int layer, int32_t page, int slot, uint64_t state) const {
  const int latent_bytes = kvcache::LatentRecordBytes(pool_.layout().kv_cache_dtype);
  std::byte* latent = pool_.Page(RecordKind::kLatent, layer, page).data() + slot * latent_bytes;
  Expand(latent, latent_bytes, Mix(state ^ 1));
  std::byte* index = pool_.Page(RecordKind::kIndex, layer, page).data();
  Expand(index + slot * kvcache::kIndexDim, kvcache::kIndexDim, Mix(state ^ 2));
  Expand(index + kvcache::kIndexScaleOffset + slot * sizeof(float), sizeof(float), Mix(state ^ 3));
}

uint64_t HashModel::FoldRecords(int layer, absl::Span<const int32_t> page_table, int64_t position,
                                uint64_t state) const {
  const int latent_bytes = kvcache::LatentRecordBytes(pool_.layout().kv_cache_dtype);
  for (int64_t begin = 0; begin <= position; begin += kvcache::kPageTokens) {
    const int64_t num_slots = std::min<int64_t>(kvcache::kPageTokens, position + 1 - begin);
    const int32_t page = page_table[begin / kvcache::kPageTokens];
    state = Fold(pool_.Page(RecordKind::kLatent, layer, page).data(), num_slots * latent_bytes, state);
    const std::byte* index = pool_.Page(RecordKind::kIndex, layer, page).data();
    state = Fold(index, num_slots * kvcache::kIndexDim, state);
    state = Fold(index + kvcache::kIndexScaleOffset, num_slots * sizeof(float), state);
  }
  return state;
}

void HashModel::RunLayer(int layer, const model::RowBatch& batch, absl::Span<uint64_t> states) const {
  for (const model::Segment& segment : batch.segments) {
    for (int i = 0; i < segment.num_rows; ++i) {
      const int64_t position = segment.first_position + i;
      WriteRecords(layer, segment.page_table[position / kvcache::kPageTokens],
                   static_cast<int>(position % kvcache::kPageTokens), states[segment.row_begin + i] + layer);
    }
  }
  for (const model::Segment& segment : batch.segments) {
    for (int i = 0; i < segment.num_rows; ++i) {
      uint64_t& state = states[segment.row_begin + i];
      state = FoldRecords(layer, segment.page_table, segment.first_position + i, state);
    }
  }
}

int32_t HashModel::Favourite(int32_t token, int64_t position) const {
  const uint64_t hash = Mix(options_.weights_seed + Mix(static_cast<uint64_t>(position) << 32 | token));
  if (!options_.has_mtp || (hash & 1) == 0) return -1;
  return static_cast<int32_t>((hash >> 1) % static_cast<uint64_t>(options_.vocab_size));
}

void HashModel::WriteLogits(const model::RowBatch& batch, int64_t favourites_shift, absl::Span<const uint64_t> states,
                            absl::Span<float> logits) const {
  size_t segment_index = 0;
  for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
    const int row = batch.logits_rows[i];
    const uint64_t state = states[row];
    const absl::Span<float> out = logits.subspan(i * options_.vocab_size, options_.vocab_size);
    for (int token = 0; token < options_.vocab_size; ++token) {
      // 24 random bits in [-4, 4): flat enough that every sampling parameter matters.
      const auto bits = static_cast<int32_t>(Mix(state + static_cast<uint64_t>(token) * 0xD1B54A32D192ED03) >> 40);
      out[token] = static_cast<float>(bits - (1 << 23)) / static_cast<float>(1 << 21);
    }
    const auto is_behind = [&](const model::Segment& s) { return s.row_begin + s.num_rows <= row; };
    while (is_behind(batch.segments[segment_index])) ++segment_index;
    const model::Segment& segment = batch.segments[segment_index];
    const int64_t position = segment.first_position + (row - segment.row_begin) + favourites_shift;
    if (const int32_t favourite = Favourite(batch.tokens[row], position); favourite >= 0) out[favourite] += 6;
  }
}

absl::Status HashModel::Forward(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                absl::Span<float> logits) {
  std::vector<kernels::Bf16> hidden(batch.tokens.size() * kHiddenSize);
  return ForwardWithHidden(batch, layer_done, logits, absl::MakeSpan(hidden));
}

absl::Status HashModel::ForwardWithHidden(const model::RowBatch& batch, absl::FunctionRef<void(int layer)> layer_done,
                                          absl::Span<float> logits, absl::Span<kernels::Bf16> hidden) {
  if (absl::Status status = Validate(batch, logits); !status.ok()) return status;
  if (hidden.size() != batch.tokens.size() * kHiddenSize) return absl::InvalidArgumentError("hidden of another size");
  std::vector<uint64_t> states(batch.tokens.size());
  for (const model::Segment& segment : batch.segments) {
    for (int i = 0; i < segment.num_rows; ++i) {
      const int row = segment.row_begin + i;
      states[row] = Mix(options_.weights_seed ^ Mix((segment.first_position + i) << 32 | batch.tokens[row]));
    }
  }
  const int num_main_layers = num_layers() - (has_mtp() ? 1 : 0);
  for (int layer = 0; layer < num_main_layers; ++layer) {
    RunLayer(layer, batch, absl::MakeSpan(states));
    layer_done(layer);
  }
  WriteLogits(batch, /*favourites_shift=*/0, states, logits);
  std::memcpy(hidden.data(), states.data(), states.size() * sizeof(uint64_t));
  return absl::OkStatus();
}

absl::Status HashModel::RunMtp(const model::RowBatch& batch, absl::Span<const kernels::Bf16> hidden,
                               absl::FunctionRef<void(int layer)> layer_done, absl::Span<float> logits,
                               absl::Span<kernels::Bf16> out_hidden) {
  if (!has_mtp()) return absl::FailedPreconditionError("the MTP layer is not loaded");
  if (absl::Status status = Validate(batch, logits); !status.ok()) return status;
  if (hidden.size() != batch.tokens.size() * kHiddenSize ||
      out_hidden.size() != batch.logits_rows.size() * kHiddenSize) {
    return absl::InvalidArgumentError("hidden of another size");
  }
  std::vector<uint64_t> states(batch.tokens.size());
  std::memcpy(states.data(), hidden.data(), states.size() * sizeof(uint64_t));
  for (const model::Segment& segment : batch.segments) {
    for (int i = 0; i < segment.num_rows; ++i) {
      uint64_t& state = states[segment.row_begin + i];
      state = Mix(~options_.weights_seed ^ Mix(state + batch.tokens[segment.row_begin + i]) ^
                  Mix(segment.first_position + i));
    }
  }
  RunLayer(num_layers() - 1, batch, absl::MakeSpan(states));
  layer_done(num_layers() - 1);
  // Its row at position i holds the token of position i + 1.
  WriteLogits(batch, /*favourites_shift=*/1, states, logits);
  for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
    std::memcpy(&out_hidden[i * kHiddenSize], &states[batch.logits_rows[i]], sizeof(uint64_t));
  }
  return absl::OkStatus();
}

}  // namespace tandem::sim
