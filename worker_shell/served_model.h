// The model that a worker serves, of a checkpoint or with weights made from a seed: what the handshake says of it, and
// its executor.
// Tested by //tests/workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint.h"
#include "model/deepseek_model.h"
#include "model/device_buffers.h"
#include "model/model_config.h"
#include "model/model_executor.h"
#include "model/pipeline.h"
#include "model/rank_group.h"
#include "model/token_mask/vocabulary.h"
#include "proto/kv_transfer.pb.h"
#include "worker_shell/cluster_config.h"

namespace tandem::worker_shell {

// How the ranks of a worker divide its work; one alone has nothing to divide.
struct RankLayout {
  model::RowSplit row_split = model::RowSplit::kInterleave;
  model::KvPlacement kv_placement = model::KvPlacement::kCopied;
  bool spreads_experts = false;
  bool is_pipeline = false;  // the devices are stages, and the above says nothing
  model::PipelineOptions pipeline;
};

// What runs a worker's steps, and the same as a group of ranks or as a pipeline of stages, else null.
struct WorkerExecutor {
  std::unique_ptr<model::ModelExecutor> executor;
  const model::RankGroup* ranks = nullptr;
  const model::Pipeline* pipeline = nullptr;
};

struct ExecutorOptions {
  int num_rows_max = 1;                       // of one batch
  bool writes_back_kv = true;                 // whether somebody reads, in the pool, what the executor writes
  model::DeviceBufferOptions device_buffers;  // HiSparse
};

class ServedModel final {
 public:
  // The checkpoint's errors; INVALID_ARGUMENT where cluster.context_length is beyond what the checkpoint allows, where
  // no format has the name cluster.kv_cache_dtype, or where drafts are wanted of a checkpoint without an MTP layer.
  // numerics_id: of the backend that the executor will run on.
  static absl::StatusOr<ServedModel> Open(const ClusterConfig& config, absl::string_view numerics_id);

  const std::string& hash() const { return hash_; }
  const proto::Fingerprint& fingerprint() const { return fingerprint_; }
  // Of proto/page_key.h: pages of workers whose fingerprints differ have nothing in common. Never 0.
  uint64_t page_key_domain() const;
  const model::ModelConfig& config() const { return config_; }
  int num_layers() const;  // that have KV pages, the MTP layer included where it is served
  int64_t context_length() const { return context_length_; }
  // Contexts up to it are attended to whole; at least index_topk.
  int64_t dense_context_max() const { return dense_context_max_; }
  // Of the checkpoint's tokenizer.json; null, with a line in the log, where it has none.
  absl::StatusOr<std::shared_ptr<const model::Vocabulary>> LoadVocabulary() const;
  // A pool for this many tokens of this model, as the cluster's settings have it; parts of a page do not count.
  kvcache::KvLayout LayoutFor(int64_t num_tokens) const;

  // Loads the weights. pool: of `layout`; it and the backend outlive the executor.
  absl::StatusOr<std::unique_ptr<model::ModelExecutor>> BuildExecutor(kernels::Backend& backend,
                                                                      const kvcache::KvLayout& layout,
                                                                      std::span<std::byte> pool,
                                                                      const ExecutorOptions& options) const;
  // The same on as many ranks or stages as there are devices, at least one; pool: rank 0's.
  absl::StatusOr<WorkerExecutor> BuildOnRanks(absl::Span<const std::unique_ptr<kernels::Backend>> devices,
                                              const kvcache::KvLayout& layout, std::span<std::byte> pool,
                                              const ExecutorOptions& options, const RankLayout& ranks) const;

 private:
  ServedModel() = default;

  model::DeepseekModelOptions ModelOptions(const kvcache::KvLayout& layout, const ExecutorOptions& options) const;
  // From the seed, where there is no checkpoint.
  absl::StatusOr<std::shared_ptr<const model::ModelWeights>> MakeWeights(kernels::Backend& backend) const;

  std::string model_path_;
  model::ModelConfig config_;
  std::shared_ptr<const model::Checkpoint> checkpoint_;  // null: weights are made from a seed
  std::string hash_;
  kvcache::KvCacheDtype kv_cache_dtype_ = kvcache::KvCacheDtype::kFp8E4m3;
  bool has_mtp_ = false;  // the MTP layer is served, not only there
  proto::Fingerprint fingerprint_;
  int64_t context_length_ = 0;
  std::string index_topk_pattern_;
  int64_t dense_context_max_ = 0;
};

}  // namespace tandem::worker_shell
