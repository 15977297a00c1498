#include "worker_shell/cluster_config.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "kvcache/kv_layout.h"

namespace tandem::worker_shell {
namespace {

constexpr int kSpeculativeStepsMax = 15;  // drafts can be taken back from a constraint's matcher, TokenMatcher's 32

}  // namespace

void AddClusterFields(base::ConfigSchema& schema, ClusterConfig& config) {
  schema.String("cluster.model_path", &config.model_path, "Checkpoint folder in Hugging Face layout.");
  schema.Choice("cluster.load_format", &config.load_format, {"auto", "dummy"},
                "Where weights come from. auto: the folder's safetensors files. dummy: none are read; weights of the "
                "folder's config.json are made from a fixed seed, for trials of speed and memory at real dimensions.");
  schema.Int("cluster.page_size", &config.page_size,
             {.unit = "tokens", .min = kvcache::kPageTokens, .max = kvcache::kPageTokens},
             "Tokens of one KV page; the records of this build are grouped by 64.");
  schema.Choice("cluster.kv_cache_dtype", &config.kv_cache_dtype,
                {std::begin(kvcache::kKvCacheDtypeNames), std::end(kvcache::kKvCacheDtypeNames)},
                "What the KV cache holds latents as. fp8_e4m3: 656 bytes a token and layer, scales included; bfloat16: "
                "1,152. Rotary keys are BF16 and index keys FP8 (132 bytes) in either.");
  schema.Int64("cluster.context_length", &config.context_length, {.unit = "tokens", .min = 0, .max = 1 << 20},
               "Longest sequence, prompt and generated tokens together; 0 takes max_position_embeddings.");
  schema.String(
      "cluster.index_topk_pattern", &config.index_topk_pattern,
      "Index Cache, a letter for each layer: F chooses the positions that its rows attend to, S takes those of "
      "the nearest F before it. Changes answers. Empty: index_topk_freq says.");
  schema.Int("cluster.index_topk_freq", &config.index_topk_freq, {.unit = "layers", .min = 0, .max = 1024},
             "Index Cache by a rule: layer l chooses where max(l - 1, 0) is a multiple of this, else it is an S. "
             "Changes answers. 0: every layer chooses for itself.");
  schema.Int64("cluster.dense_attention_max_context", &config.dense_attention_max_context,
               {.unit = "tokens", .min = 0, .max = 1 << 20},
               "Rows whose context is no longer attend to all of it, without the indexer; at least the model's "
               "index_topk, which 0 takes. More than that changes answers and costs attention over the whole context.");
  schema.Int(
      "cluster.speculative.num_steps", &config.speculative.num_steps,
      {.unit = "drafts", .min = 0, .max = kSpeculativeStepsMax},
      "Tokens that the checkpoint's MTP layer drafts at most for each step of a sequence; the step verifies them "
      "all at once. Tokens do not depend on it. 0: off, the MTP layer is not loaded.");
  schema.Int("cluster.speculative.topk", &config.speculative.topk, {.unit = "drafts", .min = 1, .max = 1},
             "Drafts of each position; this build drafts chains, no trees.");
  schema.Int("cluster.speculative.num_draft_tokens", &config.speculative.num_draft_tokens,
             {.unit = "tokens", .min = 0, .max = kSpeculativeStepsMax + 1},
             "Rows that a step verifies for a sequence: the newest token and the drafts behind it, so num_steps + 1; 0 "
             "takes that.");
}

absl::Status ValidateSpeculative(const SpeculativeConfig& config) {
  const int expected = config.is_on() ? config.num_steps + 1 : 0;
  if (config.num_draft_tokens == 0 || config.num_draft_tokens == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(config.is_on()
                                        ? absl::StrCat("cluster.speculative.num_draft_tokens is ",
                                                       config.num_draft_tokens, ", must be num_steps + 1 = ", expected)
                                        : absl::StrCat("cluster.speculative.num_draft_tokens is ",
                                                       config.num_draft_tokens, ", must be 0 where num_steps is 0"));
}

}  // namespace tandem::worker_shell
