#include "model/testing/edited_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "kernels/dtypes.h"
#include "tools/make_checkpoint/checkpoint_writer.h"

namespace tandem::model {

namespace fs = std::filesystem;

std::shared_ptr<const Checkpoint> MakeEditedCheckpoint(
    const TensorEdit& edit, const std::vector<std::pair<std::string, std::string>>& config_replacements) {
  const std::string root = absl::StrCat(::testing::TempDir(), "/edited-", ::getpid());
  const std::string original = root + "/original", edited = root + "/edited";
  fs::remove_all(root);
  fs::create_directories(edited);
  absl::Status status =
      make_checkpoint::WriteCheckpoint({.config_name = "v32-micro", .seed = 1, .folder = original, .num_shards = 1});
  TANDEM_CHECK(status.ok(), status.message());
  auto file = SafetensorsFile::Open(original + "/model-00001-of-000001.safetensors");
  TANDEM_CHECK(file.ok(), file.status().message());
  std::vector<OwnTensor> owned;
  for (const Tensor& tensor : (*file)->tensors()) {
    owned.push_back({tensor, {tensor.bytes.begin(), tensor.bytes.end()}});
  }
  edit(owned);
  std::vector<Tensor> tensors;
  for (OwnTensor& own : owned) {
    own.tensor.bytes = own.bytes;
    tensors.push_back(own.tensor);
  }
  std::ifstream config_file(original + "/config.json");
  std::string config(std::istreambuf_iterator<char>(config_file), {});
  for (const auto& [from, to] : config_replacements) {
    TANDEM_CHECK(absl::StrContains(config, from), from);
    config = absl::StrReplaceAll(config, {{from, to}});
  }
  std::ofstream(edited + "/config.json") << config;
  status = WriteSafetensors(edited + "/model.safetensors", tensors, {});
  TANDEM_CHECK(status.ok(), status.message());
  auto checkpoint = Checkpoint::Open(edited);
  TANDEM_CHECK(checkpoint.ok(), checkpoint.status().message());
  fs::remove_all(root);
  return *checkpoint;
}

OwnTensor& At(std::vector<OwnTensor>& tensors, const std::string& name) {
  auto it = std::find_if(tensors.begin(), tensors.end(), [&](const OwnTensor& own) { return own.tensor.name == name; });
  TANDEM_CHECK(it != tensors.end(), name);
  return *it;
}

void Erase(std::vector<OwnTensor>& tensors, const std::string& name) {
  const size_t num_erased = std::erase_if(tensors, [&](const OwnTensor& own) { return own.tensor.name == name; });
  TANDEM_CHECK(num_erased == 1, name);
}

void StoreAsBf16(std::vector<OwnTensor>& tensors, const std::string& name) {
  const OwnTensor scale = At(tensors, name + "_scale_inv");
  OwnTensor& weight = At(tensors, name);
  const int64_t rows = weight.tensor.shape[0], columns = weight.tensor.shape[1];
  std::vector<uint8_t> bytes(rows * columns * 2);
  for (int64_t i = 0; i < rows * columns; ++i) {
    float factor;
    std::memcpy(&factor, &scale.bytes[(i / columns / 128 * scale.tensor.shape[1] + i % columns / 128) * 4], 4);
    const kernels::Bf16 value = kernels::ToBf16(kernels::ToFloat(kernels::E4m3{weight.bytes[i]}) * factor);
    std::memcpy(&bytes[2 * i], &value, 2);
  }
  weight.tensor.dtype = DType::kBf16;
  weight.bytes = std::move(bytes);
  Erase(tensors, name + "_scale_inv");
}

}  // namespace tandem::model
