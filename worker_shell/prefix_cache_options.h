// A worker's prefix cache, as its configuration and its model have it. Tested by //tests/workers.
#pragma once

#include <optional>

#include "kvcache/prefix_index.h"
#include "worker_shell/served_model.h"
#include "worker_shell/worker_config.h"

namespace tandem::worker_shell {

inline std::optional<kvcache::PrefixIndexOptions> PrefixCacheOptions(const WorkerConfig& config,
                                                                     const ServedModel& model) {
  if (!config.prefix_cache) return std::nullopt;
  return kvcache::PrefixIndexOptions{.num_pages_max = config.prefix_cache_tokens_max / kvcache::kPageTokens,
                                     .domain = model.page_key_domain()};
}

}  // namespace tandem::worker_shell
