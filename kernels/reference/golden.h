// The golden tensors of one op, made by the float64 reference (tools/reference), with the tolerances of its manifest.
//
//   GoldenOp golden("rmsnorm");
//   for (const std::string& c : golden.cases()) {
//     Tensor<Bf16, 2> x = golden.Input<Bf16, 2>(c, "x"); ...
//     golden.Expect(c, "y", y);
//   }
//
// A missing file, tensor or manifest entry ends the test program: a golden that is not compared must not pass.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "kernels/op_testing.h"
#include "model/safetensors.h"

namespace tandem::kernels {

enum class GoldenMetric { kExact, kBf16Ulp, kRelative, kMaxAbs, kDistance };

struct GoldenTolerance {
  GoldenMetric metric = GoldenMetric::kExact;
  double bound = 0;
  double atol = 0;
};

class GoldenOp final {
 public:
  explicit GoldenOp(const std::string& op);
  ~GoldenOp();

  const std::vector<std::string>& cases() const { return cases_; }
  bool Has(const std::string& case_name, const std::string& tensor) const;
  // A scalar parameter of a case; booleans are 0 and 1.
  double Number(const std::string& case_name, const std::string& parameter) const;
  std::string Text(const std::string& case_name, const std::string& parameter) const;

  template <typename T, size_t kRank>
  Tensor<T, kRank> Input(const std::string& case_name, const std::string& tensor) const {
    const model::Tensor& stored = Find(case_name, tensor);
    std::array<int64_t, kRank> shape{};
    TANDEM_CHECK(stored.shape.size() == kRank, stored.name);
    std::copy(stored.shape.begin(), stored.shape.end(), shape.begin());
    Tensor<T, kRank> values(shape);
    TANDEM_CHECK(stored.bytes.size() == values.values().size() * sizeof(T), stored.name);
    std::memcpy(values.values().data(), stored.bytes.data(), stored.bytes.size());
    return values;
  }

  // Compares with the stored output under the manifest's metric. Row-major values; a NaN equals a NaN.
  template <typename T, size_t kRank>
  void Expect(const std::string& case_name, const std::string& output, Tensor<T, kRank>& actual) const {
    Tensor<T, kRank> expected = Input<T, kRank>(case_name, output);
    ASSERT_EQ(actual.values().size(), expected.values().size()) << case_name << "." << output;
    if (Tolerance(output).metric == GoldenMetric::kExact) {
      EXPECT_TRUE(actual == expected) << case_name << "." << output << " must be equal to the byte";
    } else if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, float>) {
      Compare(case_name + "." + output, Tolerance(output), ToDoubles(actual), ToDoubles(expected));
    } else {
      FAIL() << output << " has a type that can only be compared exactly";
    }
  }

 private:
  class Manifest;
  const model::Tensor& Find(const std::string& case_name, const std::string& tensor) const;
  GoldenTolerance Tolerance(const std::string& output) const;
  static void Compare(const std::string& what, const GoldenTolerance& tolerance, const std::vector<double>& actual,
                      const std::vector<double>& expected);

  const std::unique_ptr<model::SafetensorsFile> file_;
  const std::unique_ptr<Manifest> manifest_;
  std::vector<std::string> cases_;
};

}  // namespace tandem::kernels
