#include "worker_shell/served_model.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvtransfer/fingerprint.h"
#include "model/deepseek_model.h"
#include "model/dummy_weights.h"
#include "model/index_cache.h"
#include "model/token_mask/token_bytes.h"
#include "proto/page_key.h"

namespace tandem::worker_shell {
namespace {

constexpr uint64_t kDummySeed = 1;  // both workers of a pair make the same
constexpr absl::string_view kSplitNames[] = {"interleave", "by sequence", "all rows"};  // of model::RowSplit

absl::Span<uint8_t> BytesOf(std::span<std::byte> pool) {
  return {reinterpret_cast<uint8_t*>(pool.data()), pool.size()};
}

}  // namespace

absl::StatusOr<ServedModel> ServedModel::Open(const ClusterConfig& config, absl::string_view numerics_id) {
  if (config.model_path.empty())
    return absl::InvalidArgumentError("cluster.model_path is not set: the checkpoint folder");
  const std::optional<kvcache::KvCacheDtype> kv_cache_dtype = kvcache::KvCacheDtypeOf(config.kv_cache_dtype);
  if (!kv_cache_dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.kv_cache_dtype is \"", config.kv_cache_dtype,
                                                   "\", allowed ", absl::StrJoin(kvcache::kKvCacheDtypeNames, ", ")));
  }
  ServedModel served;
  served.model_path_ = config.model_path;
  served.kv_cache_dtype_ = *kv_cache_dtype;
  if (config.load_format == "dummy") {
    ASSIGN_OR_RETURN(served.config_, model::LoadModelConfig(config.model_path));
    served.hash_ = model::DummyModelHash(served.config_, kDummySeed);
    LOG_WARNING("weights are made from a seed, answers are nonsense", {"load_format", config.load_format});
  } else {
    ASSIGN_OR_RETURN(served.checkpoint_, model::Checkpoint::Open(config.model_path));
    for (const std::string& note : served.checkpoint_->notes()) LOG_WARNING("checkpoint is odd", {"note", note});
    served.config_ = served.checkpoint_->config();
    served.hash_ = served.checkpoint_->ModelHash();
  }
  const model::ModelConfig& model = served.config_;
  if (config.context_length > model.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.context_length ", config.context_length,
                                                   " is beyond the checkpoint's max_position_embeddings ",
                                                   model.max_position_embeddings));
  }
  served.has_mtp_ = config.speculative.is_on();
  if (served.has_mtp_ && !model.has_mtp()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster.speculative.num_steps is ", config.speculative.num_steps,
                     ", the checkpoint has no MTP layer (num_nextn_predict_layers is 0): it must be 0"));
  }
  served.context_length_ = config.context_length > 0 ? config.context_length : model.max_position_embeddings;
  auto pattern = model::IndexCachePattern(config.index_topk_pattern, config.index_topk_freq, model.num_hidden_layers);
  if (!pattern.ok()) {
    return absl::Status(pattern.status().code(), absl::StrCat("cluster.", pattern.status().message()));
  }
  served.index_topk_pattern_ = *std::move(pattern);
  if (config.dense_attention_max_context != 0 && config.dense_attention_max_context < model.index_topk) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cluster.dense_attention_max_context is ", config.dense_attention_max_context, ", must be at least index_topk ",
        model.index_topk, ", up to which attention is dense by definition, or 0 for it"));
  }
  served.dense_context_max_ = std::max<int64_t>(model.index_topk, config.dense_attention_max_context);
  served.fingerprint_ = kvtransfer::BuildFingerprint(
      {.model_hash = served.hash_,
       .kv_cache_dtype = config.kv_cache_dtype,
       .kv_layout = kvtransfer::KvLayoutName(served.kv_cache_dtype_),
       .page_size = config.page_size,
       .num_layers = served.num_layers(),
       .has_mtp = served.has_mtp_,
       .index_cache_pattern = served.index_topk_pattern_.empty() ? "all" : served.index_topk_pattern_,
       .dense_threshold = static_cast<int>(served.dense_context_max_),
       .numerics_id = std::string(numerics_id)});
  return served;
}

uint64_t ServedModel::page_key_domain() const {
  std::string text;
  for (const proto::Fingerprint::Field& field : fingerprint_.fields()) {
    absl::StrAppend(&text, field.name(), "=", field.value(), "\n");
  }
  return proto::HashText(text) | 1;
}

int ServedModel::num_layers() const { return config_.num_hidden_layers + (has_mtp_ ? 1 : 0); }

absl::StatusOr<std::shared_ptr<const model::Vocabulary>> ServedModel::LoadVocabulary() const {
  absl::StatusOr<std::vector<std::string>> bytes = model::LoadTokenBytes(model_path_, config_.vocab_size);
  if (absl::IsNotFound(bytes.status())) {
    LOG_WARNING("no vocabulary: requests that constrain their answer are refused", {"cause", bytes.status()});
    return std::shared_ptr<const model::Vocabulary>();
  }
  RETURN_IF_ERROR(bytes.status());
  return std::make_shared<const model::Vocabulary>(*std::move(bytes));
}

kvcache::KvLayout ServedModel::LayoutFor(int64_t num_tokens) const {
  return {
      .num_layers = num_layers(), .num_pages = num_tokens / kvcache::kPageTokens, .kv_cache_dtype = kv_cache_dtype_};
}

absl::StatusOr<WorkerExecutor> ServedModel::BuildOnRanks(absl::Span<const std::unique_ptr<kernels::Backend>> devices,
                                                         const kvcache::KvLayout& layout, std::span<std::byte> pool,
                                                         const ExecutorOptions& options,
                                                         const RankLayout& ranks) const {
  WorkerExecutor built;
  if (devices.size() == 1) {
    ASSIGN_OR_RETURN(built.executor, BuildExecutor(*devices[0], layout, pool, options));
    return built;
  }
  model::DeepseekModelOptions model_options = ModelOptions(layout, options);
  if (ranks.is_pipeline) {
    std::vector<kernels::Backend*> stages;
    for (const auto& device : devices) stages.push_back(device.get());
    std::unique_ptr<model::Pipeline> pipeline;
    if (checkpoint_ != nullptr) {
      ASSIGN_OR_RETURN(
          pipeline, model::Pipeline::Create(stages, checkpoint_, layout, BytesOf(pool), model_options, ranks.pipeline));
    } else {
      ASSIGN_OR_RETURN(std::shared_ptr<const model::ModelWeights> weights, MakeWeights(*stages[0]));
      ASSIGN_OR_RETURN(pipeline, model::Pipeline::Create(stages, std::move(weights), layout, BytesOf(pool),
                                                         model_options, ranks.pipeline));
    }
    LOG_INFO("layers run in stages", {"stages", pipeline->size()},
             {"micro_batch_size", ranks.pipeline.micro_batch_rows}, {"async_depth", ranks.pipeline.async_depth});
    built.pipeline = pipeline.get();
    built.executor = std::move(pipeline);
    return built;
  }
  model_options.row_split = ranks.row_split;
  model_options.kv_placement = ranks.kv_placement;
  model_options.spreads_experts = ranks.spreads_experts;
  std::vector<kernels::Backend*> backends;
  for (const auto& device : devices) backends.push_back(device.get());
  std::unique_ptr<model::RankGroup> group;
  if (checkpoint_ != nullptr) {
    ASSIGN_OR_RETURN(group, model::RankGroup::Create(backends, checkpoint_, layout, BytesOf(pool), model_options));
  } else {
    ASSIGN_OR_RETURN(std::shared_ptr<const model::ModelWeights> weights, MakeWeights(*backends[0]));
    ASSIGN_OR_RETURN(group,
                     model::RankGroup::Create(backends, std::move(weights), layout, BytesOf(pool), model_options));
  }
  LOG_INFO("ranks share the rows of a step", {"ranks", group->size()},
           {"split", kSplitNames[static_cast<size_t>(ranks.row_split)]},
           {"kv", ranks.kv_placement == model::KvPlacement::kShared ? "shared" : "copied"},
           {"experts", ranks.spreads_experts ? "spread" : "on every rank"});
  built.ranks = group.get();
  built.executor = std::move(group);
  return built;
}

absl::StatusOr<std::unique_ptr<model::ModelExecutor>> ServedModel::BuildExecutor(kernels::Backend& backend,
                                                                                 const kvcache::KvLayout& layout,
                                                                                 std::span<std::byte> pool,
                                                                                 const ExecutorOptions& options) const {
  const model::DeepseekModelOptions model_options = ModelOptions(layout, options);
  std::unique_ptr<model::DeepseekModel> executor;
  if (checkpoint_ != nullptr) {
    ASSIGN_OR_RETURN(executor,
                     model::DeepseekModel::Create(backend, checkpoint_, layout, BytesOf(pool), model_options));
  } else {
    ASSIGN_OR_RETURN(std::shared_ptr<const model::ModelWeights> weights, MakeWeights(backend));
    ASSIGN_OR_RETURN(executor,
                     model::DeepseekModel::Create(backend, std::move(weights), layout, BytesOf(pool), model_options));
  }
  return std::unique_ptr<model::ModelExecutor>(std::move(executor));
}

model::DeepseekModelOptions ServedModel::ModelOptions(const kvcache::KvLayout& layout,
                                                      const ExecutorOptions& options) const {
  return {.num_rows_max = options.num_rows_max,
          .num_positions_max = std::min(context_length_, layout.num_pages * kvcache::kPageTokens),
          .with_mtp = has_mtp_,
          .writes_back_kv = options.writes_back_kv,
          .device_buffers = options.device_buffers,
          .index_topk_pattern = index_topk_pattern_,
          .dense_context_max = dense_context_max_};
}

absl::StatusOr<std::shared_ptr<const model::ModelWeights>> ServedModel::MakeWeights(kernels::Backend& backend) const {
  auto made = model::MakeDummyWeights(backend, config_, has_mtp_, kDummySeed);
  if (!made.ok()) return absl::Status(made.status().code(), absl::StrCat("the weights: ", made.status().message()));
  return std::shared_ptr<const model::ModelWeights>(*std::move(made));
}

}  // namespace tandem::worker_shell
