#include "model/record_exchange.h"

#include <algorithm>
#include <cstring>

#include "base/status_macros.h"

namespace tandem::model {
namespace {

// Calls copy(bytes in the pool, offset in the travelling record, number of bytes) for each part of a row's records.
template <typename Copy>
void ForEachPart(const kvcache::KvLayout& layout, uint8_t* pool, int layer, const RecordPlace& place,
                 const Copy& copy) {
  const int64_t latent_bytes = kvcache::LatentRecordBytes(layout.kv_cache_dtype);
  uint8_t* latents = pool + layout.LatentOffset(layer, place.page);
  uint8_t* keys = pool + layout.IndexOffset(layer, place.page);
  copy(latents + place.slot * latent_bytes, 0, latent_bytes);
  copy(keys + place.slot * kvcache::kIndexDim, latent_bytes, kvcache::kIndexDim);
  copy(keys + kvcache::kIndexScaleOffset + place.slot * sizeof(float), latent_bytes + kvcache::kIndexDim,
       int64_t{sizeof(float)});
}

}  // namespace

RecordExchange::RecordExchange(Communicator& communicator, KvPlacement placement, const kvcache::KvLayout& layout,
                               absl::Span<uint8_t> pool, int num_rows_max)
    : communicator_(communicator),
      placement_(placement),
      layout_(layout),
      pool_(pool),
      pieces_(communicator.size()),
      num_rows_(communicator.size()) {
  if (placement == KvPlacement::kCopied) records_.resize(num_rows_max * ExchangedRecordBytes(layout.kv_cache_dtype));
}

absl::Status RecordExchange::Run(const BatchPlan& plan, int layer) {
  if (placement_ == KvPlacement::kShared) return communicator_.Barrier();
  const int64_t record_bytes = ExchangedRecordBytes(layout_.kv_cache_dtype);
  const absl::Span<const RecordPlace> rows = plan.PlacesOfAll();
  const int own = communicator_.rank();
  std::fill(num_rows_.begin(), num_rows_.end(), 0);
  for (const RecordPlace& row : rows) ++num_rows_[row.rank];
  std::byte* next = records_.data();
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    pieces_[rank] = {next, static_cast<size_t>(num_rows_[rank] * record_bytes)};
    next += pieces_[rank].size();
  }
  // Each rank's records stand in the order of its rows.
  std::byte* record = pieces_[own].data();
  for (const RecordPlace& row : rows) {
    if (row.rank != own) continue;
    ForEachPart(layout_, pool_.data(), layer, row, [record](const uint8_t* cached, int64_t offset, int64_t num_bytes) {
      std::memcpy(record + offset, cached, num_bytes);
    });
    record += record_bytes;
  }
  RETURN_IF_ERROR(communicator_.AllGather(pieces_[own], pieces_));
  std::fill(num_rows_.begin(), num_rows_.end(), 0);
  for (const RecordPlace& row : rows) {
    const std::byte* arrived = pieces_[row.rank].data() + num_rows_[row.rank]++ * record_bytes;
    if (row.rank == own) continue;
    ForEachPart(layout_, pool_.data(), layer, row, [arrived](uint8_t* cached, int64_t offset, int64_t num_bytes) {
      std::memcpy(cached, arrived + offset, num_bytes);
    });
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
