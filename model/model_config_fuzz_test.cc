// Any config.json is refused or gives a configuration whose dimensions the kernels and the KV records can hold.
#include <cstdint>
#include <cstdlib>

#include "model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  auto config = tandem::model::ParseModelConfig(text, "input");
  if (!config.ok()) return 0;
  const auto& c = *config;
  const bool is_sound = c.hidden_size % 128 == 0 && c.kv_lora_rank == 512 && c.index_head_dim == 128 &&
                        c.qk_rope_head_dim == 64 && c.num_hidden_layers > 0 &&
                        c.first_k_dense_replace <= c.num_hidden_layers && c.n_routed_experts % c.n_group == 0 &&
                        c.num_experts_per_tok <= c.n_routed_experts / c.n_group * c.topk_group && c.yarn.factor >= 1 &&
                        c.rms_norm_eps > 0 && c.bos_token_id < c.vocab_size;
  if (!is_sound || c.CanonicalText().empty()) std::abort();
  (void)tandem::model::ApplyGenerationConfig(text, "input", *config);
  return 0;
}
