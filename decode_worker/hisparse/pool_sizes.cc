#include "decode_worker/hisparse/pool_sizes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::decode {

using kvcache::kIndexPageBytes;
using kvcache::kPageTokens;
using kvcache::LatentPageBytes;

absl::StatusOr<PoolSizes> PlanPools(const HiSparseSettings& settings, const KvShape& shape, int64_t kv_cache_tokens) {
  const int64_t num_pages_whole = kv_cache_tokens / kPageTokens;
  const int64_t latent_bytes = LatentPageBytes(shape.kv_cache_dtype), page_bytes = latent_bytes + kIndexPageBytes;
  const int64_t num_layers = shape.num_main_layers + (shape.has_mtp ? 1 : 0);
  PoolSizes sizes{.num_tokens = num_pages_whole * kPageTokens,
                  .device_bytes = num_pages_whole * num_layers * page_bytes};
  if (!settings.enabled) return sizes;

  const int top_k = settings.top_k == 0 ? shape.index_topk : settings.top_k;
  if (top_k != shape.index_topk) {
    return absl::InvalidArgumentError(absl::StrCat(
        "process.hisparse.top_k ", top_k, ", allowed the model's index_topk ", shape.index_topk, ", or 0 for it"));
  }
  const int64_t longest_list = std::max<int64_t>(top_k, shape.dense_context_max);
  const int64_t buffer_size = settings.device_buffer_size == 0
                                  ? kvcache::PagesForTokens(std::max<int64_t>(2 * top_k, longest_list)) * kPageTokens
                                  : settings.device_buffer_size;
  if (buffer_size < top_k) {
    return absl::InvalidArgumentError(absl::StrCat("process.hisparse.device_buffer_size ", buffer_size,
                                                   ", allowed at least top_k ", top_k,
                                                   ": a row's selected tokens are on the device together"));
  }
  if (buffer_size < longest_list) {
    return absl::InvalidArgumentError(absl::StrCat("process.hisparse.device_buffer_size ", buffer_size,
                                                   ", allowed at least cluster.dense_attention_max_context ",
                                                   longest_list, ": rows up to it attend to their whole context"));
  }
  if (buffer_size % kPageTokens != 0) {
    return absl::InvalidArgumentError(absl::StrCat("process.hisparse.device_buffer_size ", buffer_size,
                                                   ", allowed multiples of a page's ", kPageTokens, " tokens"));
  }
  // In whole pages. The part of a token that stays on the device bounds the ratio.
  const auto num_host_pages =
      static_cast<int64_t>(static_cast<double>(num_pages_whole) * settings.host_to_device_ratio);
  const int64_t resident_bytes =
      shape.num_main_layers * kIndexPageBytes + (shape.has_mtp ? page_bytes : 0);  // of a page of the host pool
  const int64_t buffer_page_bytes = shape.num_main_layers * latent_bytes;
  sizes.num_kept_pages_max = static_cast<int>(buffer_size / kPageTokens);
  const int64_t one_buffer_bytes = (1 + sizes.num_kept_pages_max) * buffer_page_bytes;
  const int64_t num_host_pages_max = (sizes.device_bytes - one_buffer_bytes) / resident_bytes;
  if (sizes.device_bytes < one_buffer_bytes + resident_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("process.kv_cache_tokens ", kv_cache_tokens, " gives ", sizes.device_bytes,
                     " bytes of device memory, one device buffer of process.hisparse.device_buffer_size ", buffer_size,
                     " and its newest tokens take ", one_buffer_bytes, " beside the index keys of a page"));
  }
  if (num_host_pages > num_host_pages_max) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "process.hisparse.host_to_device_ratio %g, allowed at most %.2f: index keys%s of %d tokens leave no room for a "
        "device buffer in the %d bytes of process.kv_cache_tokens %d",
        settings.host_to_device_ratio, static_cast<double>(num_host_pages_max * 100 / num_pages_whole) / 100,
        shape.has_mtp ? " and the MTP layer" : "", num_host_pages * kPageTokens, sizes.device_bytes, kv_cache_tokens));
  }
  sizes.num_tokens = num_host_pages * kPageTokens;
  sizes.num_device_pages = (sizes.device_bytes - num_host_pages * resident_bytes) / buffer_page_bytes;
  return sizes;
}

std::string Describe(const PoolSizes& sizes) {
  return absl::StrCat("host pool of ", sizes.num_tokens, " tokens, device pool of ", sizes.num_device_pages,
                      " buffer pages, ", 1 + sizes.num_kept_pages_max, " a sequence at most, ", sizes.device_bytes,
                      " bytes of device memory in all");
}

}  // namespace tandem::decode
