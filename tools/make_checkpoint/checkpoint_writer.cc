#include "tools/make_checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "kernels/dtypes.h"
#include "model/safetensors.h"
#include "tools/make_checkpoint/named_config.h"
#include "tools/make_checkpoint/random_values.h"
#include "tools/make_checkpoint/tensor_plan.h"
#include "tools/make_checkpoint/tokenizer_json.h"

namespace tandem::make_checkpoint {
namespace {

using model::DType;
namespace fs = std::filesystem;
constexpr int64_t kBlock = 128;

// A tensor with its bytes; std::map-like stability of `bytes` is not needed: views are made when all are there.
struct OwnedTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

template <typename T>
void StoreLittleEndian(T value, uint8_t* out) {
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(out, &value, sizeof(value));
}

std::vector<float> DrawValues(const PlannedTensor& plan, uint64_t seed) {
  int64_t count = 1;
  for (int64_t dim : plan.shape) count *= dim;
  RandomValues random(seed, plan.name);
  const double deviation = plan.gain / std::sqrt(static_cast<double>(plan.shape.back()));
  std::vector<float> values(count);
  for (float& value : values) {
    switch (plan.init) {
      case Init::kFp8Linear:
      case Init::kBf16Normal:
        value = static_cast<float>(deviation * random.NextNormal());
        break;
      case Init::kBf16Unit:
        value = static_cast<float>(random.NextNormal());
        break;
      case Init::kBf16Norm:
      case Init::kF32Norm:
        value = static_cast<float>(1.0 + 0.1 * random.NextNormal());
        break;
      case Init::kF32Bias:
        value = static_cast<float>(0.1 * random.NextNormal());
        break;
      case Init::kF32Uniform:
        value = static_cast<float>(0.2 * random.NextSigned());
        break;
    }
  }
  return values;
}

void AppendFp8(const PlannedTensor& plan, const std::vector<float>& values, std::vector<OwnedTensor>& out) {
  const int64_t rows = plan.shape[0], columns = plan.shape[1];
  const int64_t row_blocks = (rows + kBlock - 1) / kBlock, column_blocks = (columns + kBlock - 1) / kBlock;
  OwnedTensor weight{plan.name, DType::kF8E4m3, plan.shape, std::vector<uint8_t>(values.size())};
  OwnedTensor scale{absl::StrCat(plan.name, "_scale_inv"),
                    DType::kF32,
                    {row_blocks, column_blocks},
                    std::vector<uint8_t>(row_blocks * column_blocks * 4)};
  for (int64_t row_block = 0; row_block < row_blocks; ++row_block) {
    for (int64_t column_block = 0; column_block < column_blocks; ++column_block) {
      const int64_t row_end = std::min(rows, (row_block + 1) * kBlock);
      const int64_t column_end = std::min(columns, (column_block + 1) * kBlock);
      float amax = 0;
      for (int64_t row = row_block * kBlock; row < row_end; ++row) {
        for (int64_t column = column_block * kBlock; column < column_end; ++column) {
          amax = std::max(amax, std::fabs(values[row * columns + column]));
        }
      }
      const float block_scale = kernels::CeilPowerOfTwo(amax / kernels::kE4m3Max);
      StoreLittleEndian(block_scale, &scale.bytes[(row_block * column_blocks + column_block) * 4]);
      for (int64_t row = row_block * kBlock; row < row_end; ++row) {
        for (int64_t column = column_block * kBlock; column < column_end; ++column) {
          const int64_t index = row * columns + column;
          weight.bytes[index] = kernels::ToE4m3(values[index] / block_scale).bits;
        }
      }
    }
  }
  out.push_back(std::move(weight));
  out.push_back(std::move(scale));
}

OwnedTensor AsBf16(const PlannedTensor& plan, const std::vector<float>& values) {
  OwnedTensor tensor{plan.name, DType::kBf16, plan.shape, std::vector<uint8_t>(values.size() * 2)};
  for (size_t i = 0; i < values.size(); ++i) StoreLittleEndian(kernels::ToBf16(values[i]).bits, &tensor.bytes[2 * i]);
  return tensor;
}

OwnedTensor AsF32(const PlannedTensor& plan, const std::vector<float>& values) {
  OwnedTensor tensor{plan.name, DType::kF32, plan.shape, std::vector<uint8_t>(values.size() * 4)};
  for (size_t i = 0; i < values.size(); ++i) StoreLittleEndian(values[i], &tensor.bytes[4 * i]);
  return tensor;
}

std::vector<OwnedTensor> MakeTensors(const NamedConfig& config, uint64_t seed) {
  std::vector<OwnedTensor> tensors;
  std::map<std::string, size_t> index_of;
  for (const PlannedTensor& plan : PlanTensors(config)) {
    index_of[plan.name] = tensors.size();
    if (!plan.copy_of.empty()) {
      TANDEM_CHECK(index_of.contains(plan.copy_of), plan.copy_of);
      OwnedTensor copy = tensors[index_of[plan.copy_of]];
      copy.name = plan.name;
      tensors.push_back(std::move(copy));
      continue;
    }
    const std::vector<float> values = DrawValues(plan, seed);
    switch (plan.init) {
      case Init::kFp8Linear:
        AppendFp8(plan, values, tensors);
        break;
      case Init::kBf16Normal:
      case Init::kBf16Unit:
      case Init::kBf16Norm:
        tensors.push_back(AsBf16(plan, values));
        break;
      case Init::kF32Norm:
      case Init::kF32Bias:
      case Init::kF32Uniform:
        tensors.push_back(AsF32(plan, values));
        break;
    }
  }
  return tensors;
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path.string(), ": cannot write"));
  return absl::OkStatus();
}

// Cuts the tensors into num_shards runs of about equal bytes and writes them with their index.
absl::Status WriteShards(const fs::path& folder, const std::vector<OwnedTensor>& tensors, int num_shards) {
  uint64_t total_bytes = 0;
  for (const OwnedTensor& tensor : tensors) total_bytes += tensor.bytes.size();
  std::vector<std::vector<model::Tensor>> shards(num_shards);
  boost::json::object weight_map;
  std::map<std::string, std::string> file_of;
  uint64_t begin = 0;
  for (const OwnedTensor& tensor : tensors) {
    const int shard = static_cast<int>(begin * num_shards / total_bytes);
    begin += tensor.bytes.size();
    shards[shard].push_back({tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
    file_of[tensor.name] = absl::StrFormat("model-%05d-of-%06d.safetensors", shard + 1, num_shards);
  }
  for (int shard = 0; shard < num_shards; ++shard) {
    const std::string name = absl::StrFormat("model-%05d-of-%06d.safetensors", shard + 1, num_shards);
    RETURN_IF_ERROR(model::WriteSafetensors((folder / name).string(), shards[shard],
                                            std::vector<std::pair<std::string, std::string>>{{"format", "pt"}}));
  }
  for (const auto& [name, file] : file_of) weight_map[name] = file;
  const boost::json::object index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
  return WriteText(folder / "model.safetensors.index.json", boost::json::serialize(index));
}

absl::Status WriteFolder(const NamedConfig& config, const CheckpointOptions& options, const fs::path& folder) {
  RETURN_IF_ERROR(WriteText(folder / "config.json", BuildConfigJson(config)));
  RETURN_IF_ERROR(WriteText(folder / "generation_config.json", BuildGenerationConfigJson()));
  RETURN_IF_ERROR(WriteText(folder / "tokenizer.json", BuildTokenizerJson(config.vocab_size)));
  RETURN_IF_ERROR(WriteText(folder / "tokenizer_config.json", BuildTokenizerConfigJson()));
  return WriteShards(folder, MakeTensors(config, options.seed), options.num_shards);
}

}  // namespace

absl::Status WriteCheckpoint(const CheckpointOptions& options) {
  ASSIGN_OR_RETURN(NamedConfig config, FindNamedConfig(options.config_name));
  if (options.num_shards < 1 || options.num_shards > 999) {
    return absl::InvalidArgumentError(absl::StrCat("shards is ", options.num_shards, ", allowed 1 to 999"));
  }
  std::string target = options.folder;
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  std::error_code error;
  if (target.empty() ||
      (fs::exists(target, error) && !(fs::is_directory(target, error) && fs::is_empty(target, error)))) {
    return absl::AlreadyExistsError(absl::StrCat(target, ": not a new or an empty folder"));
  }
  const fs::path unfinished = absl::StrCat(target, ".tmp");
  fs::remove_all(unfinished, error);
  fs::create_directories(unfinished, error);
  if (error) return absl::UnavailableError(absl::StrCat(unfinished.string(), ": cannot create: ", error.message()));
  absl::Status status = WriteFolder(config, options, unfinished);
  if (status.ok()) {
    fs::rename(unfinished, target, error);
    if (error) status = absl::UnavailableError(absl::StrCat(target, ": cannot rename to it: ", error.message()));
  }
  if (!status.ok()) fs::remove_all(unfinished, error);
  return status;
}

}  // namespace tandem::make_checkpoint
