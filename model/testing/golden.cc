#include "model/testing/golden.h"

#include <cstring>

#include "base/check.h"
#include "boost/json/value.hpp"
#include "kernels/dtypes.h"
#include "model/json.h"

namespace tandem::model {
namespace {

const boost::json::value& Manifest() {
  static const auto* manifest = [] {
    auto parsed = ReadJsonFile("tests/golden/model/manifest.json", 16 << 20);
    TANDEM_CHECK(parsed.ok(), parsed.status().message());
    return new boost::json::value(*std::move(parsed));
  }();
  return *manifest;
}

}  // namespace

Golden::Golden(const std::string& path) {
  auto file = SafetensorsFile::Open(path);
  TANDEM_CHECK(file.ok(), file.status().message());
  file_ = *std::move(file);
}

const Tensor& Golden::At(const std::string& name) const {
  const Tensor* tensor = file_->Find(name);
  TANDEM_CHECK(tensor != nullptr, name);
  return *tensor;
}

std::vector<float> Golden::ToFloats(const Tensor& tensor) {
  std::vector<float> values(tensor.bytes.size() * 8 / DTypeBits(tensor.dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (tensor.dtype == DType::kBf16) {
      kernels::Bf16 value;
      std::memcpy(&value, &tensor.bytes[2 * i], 2);
      values[i] = kernels::ToFloat(value);
    } else if (tensor.dtype == DType::kF8E4m3) {
      values[i] = kernels::ToFloat(kernels::E4m3{tensor.bytes[i]});
    } else {
      TANDEM_CHECK(tensor.dtype == DType::kF32, tensor.name);
      std::memcpy(&values[i], &tensor.bytes[4 * i], 4);
    }
  }
  return values;
}

std::vector<int32_t> Golden::ToInts(const Tensor& tensor) {
  TANDEM_CHECK(tensor.dtype == DType::kI32, tensor.name);
  std::vector<int32_t> values(tensor.bytes.size() / 4);
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

RunBound ReadRunBound(const std::string& model, const std::string& run, Noise noise) {
  const char* kind = noise == Noise::kFp32 ? "bounds" : "fp8_bounds";
  const boost::json::value& bound = Manifest().at("models").at(model).at(kind).at(run);
  const auto number = [&](const char* name) { return bound.at(name).to_number<double>(); };
  return {number("d"), number("median_row_d"), number("argmax_other"), number("decided_gap")};
}

std::string ReadCheckpointSha256(const std::string& model, const std::string& file) {
  return std::string(Manifest().at("models").at(model).at("checkpoint_sha256").at(file).as_string());
}

}  // namespace tandem::model
