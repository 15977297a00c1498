// The `cluster:` section: what every worker that shares KV pages must agree on.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/config.h"

namespace tandem::worker_shell {

// Drafts of the model's own MTP layer, verified by the model: docs/mtp.md.
struct SpeculativeConfig {
  int num_steps = 0;         // 0: off
  int topk = 1;              // of each draft step
  int num_draft_tokens = 0;  // 0: num_steps + 1, the only other value allowed

  bool is_on() const { return num_steps > 0; }
};
// INVALID_ARGUMENT naming the field, its value and the rule.
absl::Status ValidateSpeculative(const SpeculativeConfig& config);

struct ClusterConfig {
  std::string model_path;                   // checkpoint folder
  std::string load_format = "auto";         // or "dummy"
  int page_size = 64;                       // tokens
  std::string kv_cache_dtype = "fp8_e4m3";  // one of kvcache::kKvCacheDtypeNames
  int64_t context_length = 0;               // 0: the checkpoint's
  std::string index_topk_pattern;           // Index Cache: F or S for each layer; empty: index_topk_freq
  int index_topk_freq = 0;                  // 0: every layer chooses for itself
  int64_t dense_attention_max_context = 0;  // tokens; 0: index_topk
  SpeculativeConfig speculative;
};

// `config` outlives the schema.
void AddClusterFields(base::ConfigSchema& schema, ClusterConfig& config);

}  // namespace tandem::worker_shell
