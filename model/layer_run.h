// What the functions of one layer share: the batch, the pool's pages of this layer, the workspace.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/backend.h"
#include "model/batch_plan.h"
#include "model/device_buffers.h"
#include "model/expert_exchange.h"
#include "model/model_config.h"
#include "model/tensor_parallel.h"
#include "model/tensor_tap.h"
#include "model/weights.h"
#include "model/workspace.h"

namespace tandem::model {

struct LayerRun {
  kernels::Backend& backend;
  const ModelConfig& config;
  const BatchPlan& plan;
  Workspace& workspace;
  kernels::Matrix<const float> rope_table;  // [positions, 64]
  float softmax_scale = 0;
  int layer = 0;                  // its id, num_hidden_layers for the MTP layer
  bool shares_selection = false;  // workspace.selected is that of a layer before (index_cache.h)
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
  DeviceBuffers* buffers = nullptr;       // null: latent_pages are the pool's
  kernels::Matrix<uint8_t> latent_pages;  // [num_pages, LatentPageBytes(kv_cache_dtype)]
  kernels::Matrix<uint8_t> index_pages;   // [num_pages, 8448]
  kernels::Vector<int32_t> nan_count;     // [num_rows]: NaN index logits of this layer, for whom reads them
  const TensorTap& tap;
  ExpertExchange* experts = nullptr;  // where the experts are spread over ranks
  ColumnGather* columns = nullptr;    // where linear layers are cut by outputs for several ranks

  int num_rows() const { return plan.num_rows(); }
};

// Rows as linears read them: BF16, and quantised for those whose weights are FP8.
struct Activation {
  kernels::Matrix<const kernels::Bf16> x;
  QuantizedRows quantized;
  kernels::ScaleFormat scale_format = kernels::ScaleFormat::kUe8m0;
};

// Shows the stage to the tap, if there is one.
template <typename T, size_t kRank>
absl::Status ShowStage(const LayerRun& run, absl::string_view stage, const kernels::TensorView<T, kRank>& view) {
  if (!run.tap) [[likely]] {
    return absl::OkStatus();
  }
  return ShowTensor(run.tap, run.backend, absl::StrCat("L", run.layer, ".", stage), view);
}

// Quantises x into `buffer` (the first rows of it).
inline absl::StatusOr<Activation> Quantize(kernels::Backend& backend, const ModelConfig& config,
                                           const kernels::Matrix<const kernels::Bf16>& x, const QuantizedRows& buffer) {
  Activation activation{x, buffer.First(x.shape[0]), config.scale_format};
  absl::Status status = backend.Quant128(
      {.x = x, .scale_format = config.scale_format, .q = activation.quantized.q, .scale = activation.quantized.scale});
  if (!status.ok()) return status;
  return activation;
}

inline absl::Status RunLinear(kernels::Backend& backend, const Workspace& workspace, const LinearWeight& weight,
                              const Activation& in, const kernels::Matrix<kernels::Bf16>& out, int k_segments = 1) {
  if (!weight.is_fp8()) {
    return backend.Bf16Linear({.x = in.x, .weight = weight.bf16, .k_segments = k_segments, .y = out});
  }
  return backend.Fp8Linear({.x = in.quantized.q,
                            .x_scale = in.quantized.scale,
                            .weight = weight.fp8,
                            .k_segments = k_segments,
                            .y = out,
                            .scale_format = in.scale_format,
                            .workspace = workspace.linear});
}

}  // namespace tandem::model
