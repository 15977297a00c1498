// For tests: tensors and bounds of tests/golden, whose names tools/reference/README.md lists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/safetensors.h"

namespace tandem::model {

class Golden final {
 public:
  // path: from the workspace's root, as in a test's runfiles.
  explicit Golden(const std::string& path);

  bool Has(const std::string& name) const { return file_->Find(name) != nullptr; }
  // Aborts where the tensor is absent: the golden file and the test are of one commit.
  const Tensor& At(const std::string& name) const;
  // Values of an F32, BF16 or F8_E4M3 tensor.
  std::vector<float> Floats(const std::string& name) const { return ToFloats(At(name)); }
  std::vector<int32_t> Ints(const std::string& name) const { return ToInts(At(name)); }
  const SafetensorsFile& file() const { return *file_; }

  static std::vector<float> ToFloats(const Tensor& tensor);
  static std::vector<int32_t> ToInts(const Tensor& tensor);

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

// The noise that bounds are of: of sums in FP32, or of Hopper's FP8 instructions.
enum class Noise { kFp32, kFp8 };
// What noise does to the reference's own run, with some room (tools/reference/README.md).
struct RunBound {
  double d = 0;             // over all stored logits
  double median_row_d = 0;  // median over rows of d(row, golden row)
  double argmax_other = 0;  // share of rows whose argmax may be another
  double decided_gap = 0;   // where the two largest logits of a steady row are further apart, it may not
};
// models.<model>.bounds.<run> of tests/golden/model/manifest.json, or fp8_bounds.
RunBound ReadRunBound(const std::string& model, const std::string& run, Noise noise = Noise::kFp32);
// models.<model>.checkpoint_sha256.<file> of the same.
std::string ReadCheckpointSha256(const std::string& model, const std::string& file);

}  // namespace tandem::model
