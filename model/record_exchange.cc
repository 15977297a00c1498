#include "model/record_exchange.h"

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
    : communicator_(communicator), placement_(placement), layout_(layout), pool_(pool), pieces_(communicator.size()) {
  if (placement == KvPlacement::kCopied) records_.resize(num_rows_max * ExchangedRecordBytes(layout.kv_cache_dtype));
}

absl::Status RecordExchange::Run(const BatchPlan& plan, int layer) {
  if (placement_ == KvPlacement::kShared) return communicator_.Barrier();
  const int64_t record_bytes = ExchangedRecordBytes(layout_.kv_cache_dtype);
  const int num_rows = plan.num_rows_of_all();
  std::byte* next = records_.data();
  for (int rank = 0; rank < communicator_.size(); ++rank) {
    const RowShare share{.rank = rank, .size = communicator_.size()};
    pieces_[rank] = {next, static_cast<size_t>(share.NumRows(num_rows) * record_bytes)};
    next += pieces_[rank].size();
  }
  const auto record_of = [&](int rank, int batch_row) {
    return pieces_[rank].data() + batch_row / communicator_.size() * record_bytes;
  };
  const int own = communicator_.rank();
  for (int row = own; row < num_rows; row += communicator_.size()) {
    ForEachPart(layout_, pool_.data(), layer, plan.PlaceOfBatchRow(row),
                [record = record_of(own, row)](const uint8_t* cached, int64_t offset, int64_t num_bytes) {
                  std::memcpy(record + offset, cached, num_bytes);
                });
  }
  RETURN_IF_ERROR(communicator_.AllGather(pieces_[own], pieces_));
  for (int row = 0; row < num_rows; ++row) {
    const int rank = row % communicator_.size();
    if (rank == own) continue;
    ForEachPart(layout_, pool_.data(), layer, plan.PlaceOfBatchRow(row),
                [record = record_of(rank, row)](uint8_t* cached, int64_t offset, int64_t num_bytes) {
                  std::memcpy(cached, record + offset, num_bytes);
                });
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
