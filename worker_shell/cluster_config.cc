#include "worker_shell/cluster_config.h"

#include "kvcache/kv_layout.h"

namespace tandem::worker_shell {

void AddClusterFields(base::ConfigSchema& schema, ClusterConfig& config) {
  schema.String("cluster.model_path", &config.model_path, "Checkpoint folder in Hugging Face layout.");
  schema.Int("cluster.page_size", &config.page_size,
             {.unit = "tokens", .min = kvcache::kPageTokens, .max = kvcache::kPageTokens},
             "Tokens of one KV page; the records of this build are grouped by 64.");
  schema.Choice("cluster.kv_cache_dtype", &config.kv_cache_dtype, {"fp8_ds_mla"},
                "Format of the KV records: FP8 latent with four scales and a BF16 rotary key, FP8 index key.");
  schema.Int64("cluster.context_length", &config.context_length, {.unit = "tokens", .min = 0, .max = 1 << 20},
               "Longest sequence, prompt and generated tokens together; 0 takes max_position_embeddings.");
}

}  // namespace tandem::worker_shell
