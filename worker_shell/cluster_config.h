// The `cluster:` section: what every worker that shares KV pages must agree on.
#pragma once

#include <cstdint>
#include <string>

#include "base/config.h"

namespace tandem::worker_shell {

struct ClusterConfig {
  std::string model_path;                   // checkpoint folder
  std::string load_format = "auto";         // or "dummy"
  int page_size = 64;                       // tokens
  std::string kv_cache_dtype = "fp8_e4m3";  // one of kvcache::kKvCacheDtypeNames
  int64_t context_length = 0;               // 0: the checkpoint's
};

// `config` outlives the schema.
void AddClusterFields(base::ConfigSchema& schema, ClusterConfig& config);

}  // namespace tandem::worker_shell
