#include "model/rank_group.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "model/communicator/in_process_group.h"

namespace tandem::model {

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Create(absl::Span<kernels::Backend* const> backends,
                                                             std::shared_ptr<const Checkpoint> checkpoint,
                                                             const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                             const DeepseekModelOptions& options) {
  TANDEM_CHECK(!backends.empty(), "a group has a rank");
  ASSIGN_OR_RETURN(std::shared_ptr<const ModelWeights> weights,
                   LoadWeights(*backends[0], std::move(checkpoint), options.with_mtp));
  return Create(backends, std::move(weights), layout, pool, options);
}

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Create(absl::Span<kernels::Backend* const> backends,
                                                             std::shared_ptr<const ModelWeights> weights,
                                                             const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                                                             const DeepseekModelOptions& options) {
  TANDEM_CHECK(!backends.empty(), "a group has a rank");
  std::vector<std::unique_ptr<RankLink>> links = MakeInProcessGroup(static_cast<int>(backends.size()));
  std::vector<Rank> ranks(backends.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks[i];
    rank.communicator = std::make_unique<Communicator>(std::move(links[i]), base::RealClock());
    rank.pool = pool;
    if (i > 0 && (options.kv_placement == KvPlacement::kCopied || options.row_split == RowSplit::kAllRows)) {
      rank.memory = std::make_unique<kernels::BackendMemory>(*backends[i]);
      rank.pool = absl::MakeSpan(rank.memory->Allocate<uint8_t>(layout.pool_bytes()), layout.pool_bytes());
      if (const absl::Status& status = rank.memory->status(); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat("the KV pool of rank ", i, ": ", status.message()));
      }
    }
    DeepseekModelOptions of_rank = options;
    of_rank.group = rank.communicator.get();
    ASSIGN_OR_RETURN(rank.model, DeepseekModel::Create(*backends[i], weights, layout, rank.pool, of_rank));
  }
  return std::unique_ptr<RankGroup>(new RankGroup(layout, std::move(ranks)));
}

absl::Status RankGroup::OnEveryRank(LayerDone layer_done,
                                    absl::FunctionRef<absl::Status(DeepseekModel& model, LayerDone layer_done)> part) {
  RETURN_IF_ERROR(status());
  threads_.Run([&](int rank) {
    statuses_[rank] = rank == 0 ? part(*ranks_[rank].model, layer_done) : part(*ranks_[rank].model, [](int) {});
  });
  // A batch that is refused is refused by all of them alike.
  for (const absl::Status& of_rank : statuses_) RETURN_IF_ERROR(of_rank);
  return absl::OkStatus();
}

absl::Status RankGroup::Forward(const RowBatch& batch, LayerDone layer_done, absl::Span<float> logits) {
  return OnEveryRank(layer_done,
                     [&](DeepseekModel& model, LayerDone done) { return model.Forward(batch, done, logits); });
}

absl::Status RankGroup::ForwardWithHidden(const RowBatch& batch, LayerDone layer_done, absl::Span<float> logits,
                                          absl::Span<kernels::Bf16> hidden) {
  return OnEveryRank(layer_done, [&](DeepseekModel& model, LayerDone done) {
    return model.ForwardWithHidden(batch, done, logits, hidden);
  });
}

absl::Status RankGroup::RunMtp(const RowBatch& batch, absl::Span<const kernels::Bf16> hidden, LayerDone layer_done,
                               absl::Span<float> logits, absl::Span<kernels::Bf16> out_hidden) {
  return OnEveryRank(layer_done, [&](DeepseekModel& model, LayerDone done) {
    return model.RunMtp(batch, hidden, done, logits, out_hidden);
  });
}

absl::Status RankGroup::PagesArrived(absl::Span<const int32_t> pages) {
  for (const Rank& rank : ranks_) {
    RETURN_IF_ERROR(rank.model->PagesArrived(pages));  // checks them
    if (rank.memory == nullptr) continue;
    for (int layer = 0; layer < layout_.num_layers; ++layer) {
      for (const kvcache::RecordKind kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
        for (const int32_t page : pages) {
          const int64_t offset = layout_.PageOffset(kind, layer, page);
          std::memcpy(&rank.pool[offset], &ranks_[0].pool[offset], layout_.PageBytes(kind));
        }
      }
    }
  }
  return absl::OkStatus();
}

std::string RankGroup::Describe() const {
  std::string text = "rank collective calls bytes_sent seconds\n";
  for (int rank = 0; rank < size(); ++rank) {
    for (size_t op = 0; op < kCollectiveNames.size(); ++op) {
      const CollectiveCounters counters = communicator(rank).counters(static_cast<Collective>(op));
      if (counters.num_calls == 0) continue;
      absl::StrAppendFormat(&text, "%d %s %d %d %.3f\n", rank, kCollectiveNames[op], counters.num_calls,
                            counters.bytes_sent, absl::ToDoubleSeconds(counters.time));
    }
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (const int64_t pairs = num_expert_pairs(rank); pairs > 0) {
      absl::StrAppend(&text, "rank ", rank, ": ", pairs, " rows at its experts\n");
    }
  }
  if (const absl::Status ended = status(); !ended.ok()) absl::StrAppend(&text, "ended: ", ended.ToString(), "\n");
  return text;
}

}  // namespace tandem::model
