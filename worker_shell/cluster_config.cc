#include "worker_shell/cluster_config.h"

#include <iterator>

#include "kvcache/kv_layout.h"

namespace tandem::worker_shell {

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
}

}  // namespace tandem::worker_shell
