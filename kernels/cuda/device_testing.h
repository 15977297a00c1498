// What device tests share: tensors in device memory whose surroundings are watched, and comparisons that print one line
// each, so that a run on a machine that is hard to come by tells all it can.
//
//   class RowsDeviceTest : public DeviceTest {};
//   TEST_F(RowsDeviceTest, ...) {
//     Tensor<Bf16, 2> x = source.NormalBf16<2>({5, 128});            // kernels/op_testing.h: host
//     DeviceTensor<Bf16, 2> device_x = Upload(x, {.row_gap = 8});    // rows 136 elements apart
//     DeviceTensor<Bf16, 2> y = Output<Bf16, 2>({5, 128});
//     RunOp(cuda::RmsNorm(stream(), {.x = device_x, ..., .y = y}));
//     ExpectClose("RmsNorm 5x128", y.Download(), expected, {.max_ulp = 1});
//
// Without a device every test skips and says why. Tested by device_memory_device_test.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/dtypes.h"
#include "kernels/op_testing.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels::cuda {

// Fills outputs before an op and all memory around a tensor: a large number in BF16 and FP32, NaN in E4M3, an id that
// exists nowhere. Reading it spoils any result, writing over it is seen.
inline constexpr uint8_t kPoison = 0x7f;
inline constexpr int64_t kGuardBytes = 256;  // before and after

// Where a tensor lies in its memory. Unaligned starts and rows apart are what views of larger tensors have.
struct Placement {
  int64_t row_gap = 0;  // elements between one innermost row and the next
  int64_t offset = 0;   // elements between a boundary of 256 bytes and the first one
};

template <typename T, size_t kRank>
class DeviceTensor final {
 public:
  using Shape = std::array<int64_t, kRank>;

  DeviceTensor(Stream stream, const Shape& shape, const Placement& placement)
      : stream_(stream), offset_(kGuardBytes + placement.offset * int64_t{sizeof(T)}) {
    typename TensorView<T, kRank>::Dims strides;
    int64_t stride = 1;
    for (size_t i = kRank; i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i];
      if (i == kRank - 1) stride += placement.row_gap;
    }
    bytes_.assign(static_cast<size_t>(offset_ + stride * int64_t{sizeof(T)} + kGuardBytes), std::byte{kPoison});
    absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(static_cast<int64_t>(bytes_.size()));
    EXPECT_TRUE(memory.ok()) << memory.status();
    if (!memory.ok()) return;
    memory_ = *std::move(memory);
    view_ = TensorView<T, kRank>(reinterpret_cast<T*>(memory_.data() + offset_), shape, strides);
    Send();
  }

  // Tensors that are empty are null to nobody: their view has memory.
  operator TensorView<T, kRank>() const { return view_; }        // NOLINT(google-explicit-constructor)
  operator TensorView<const T, kRank>() const { return view_; }  // NOLINT(google-explicit-constructor)
  const TensorView<T, kRank>& view() const { return view_; }

  void Upload(Tensor<T, kRank>& host) {
    ForEachRow([&](int64_t row, int64_t start) {
      std::memcpy(bytes_.data() + start, host.values().data() + row * row_width(),
                  static_cast<size_t>(row_width()) * sizeof(T));
    });
    Send();
  }
  // Waits for the stream. Fails the test where a byte around the elements has changed.
  Tensor<T, kRank> Download() {
    Tensor<T, kRank> host(view_.shape);
    std::vector<std::byte> now(bytes_.size());
    const absl::Status status = CopyToHost(stream_, now.data(), memory_.data(), static_cast<int64_t>(now.size()));
    EXPECT_TRUE(status.ok()) << status;
    std::vector<bool> is_element(now.size());
    ForEachRow([&](int64_t row, int64_t start) {
      const size_t num_bytes = static_cast<size_t>(row_width()) * sizeof(T);
      std::memcpy(host.values().data() + row * row_width(), now.data() + start, num_bytes);
      std::fill_n(is_element.begin() + start, num_bytes, true);
    });
    for (size_t i = 0; i < now.size(); ++i) {
      if (is_element[i] || now[i] == std::byte{kPoison}) continue;
      ADD_FAILURE() << "byte " << static_cast<int64_t>(i) - offset_ << " from the start of a tensor of ["
                    << absl::StrJoin(view_.shape, ", ") << "] lies around its elements and was overwritten";
      break;
    }
    return host;
  }

 private:
  int64_t row_width() const { return view_.shape[kRank - 1]; }
  // visit(number of the innermost row, its first byte in memory).
  template <typename Visit>
  void ForEachRow(const Visit& visit) const {
    const int64_t num_rows = row_width() == 0 ? 0 : view_.num_elements() / row_width();
    for (int64_t row = 0; row < num_rows; ++row) {
      int64_t rest = row, start = 0;
      for (size_t i = kRank - 1; i-- > 0;) {
        start += rest % view_.shape[i] * view_.strides[i];
        rest /= view_.shape[i];
      }
      visit(row, offset_ + start * int64_t{sizeof(T)});
    }
  }
  void Send() {
    const absl::Status status =
        CopyToDevice(stream_, memory_.data(), bytes_.data(), static_cast<int64_t>(bytes_.size()));
    EXPECT_TRUE(status.ok()) << status;
  }

  Stream stream_;
  int64_t offset_;  // bytes before the first element
  std::vector<std::byte> bytes_;
  DeviceMemory memory_;
  TensorView<T, kRank> view_;
};

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status device = UseFirstSupportedDevice();
    if (!device.ok()) GTEST_SKIP() << "no device: " << device;
    absl::StatusOr<OwnedStream> stream = OwnedStream::Create();
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = *std::move(stream);
  }

  Stream stream() const { return stream_->get(); }

  template <typename T, size_t kRank>
  DeviceTensor<T, kRank> Upload(Tensor<T, kRank>& host, const Placement& placement = {}) {
    std::array<int64_t, kRank> shape;
    for (size_t i = 0; i < kRank; ++i) shape[i] = host.dim(i);
    DeviceTensor<T, kRank> tensor(stream(), shape, placement);
    tensor.Upload(host);
    return tensor;
  }
  template <typename T, size_t kRank>
  DeviceTensor<T, kRank> Output(const std::array<int64_t, kRank>& shape, const Placement& placement = {}) {
    return DeviceTensor<T, kRank>(stream(), shape, placement);
  }
  // The op was accepted and its kernels ended well.
  void RunOp(const absl::Status& launched) {
    ASSERT_TRUE(launched.ok()) << launched;
    const absl::Status done = Synchronize(stream());
    ASSERT_TRUE(done.ok()) << done;
  }

 private:
  std::optional<OwnedStream> stream_;
};

// What a comparison of two tensors found. Two NaN are equal, and so are two infinities of one sign.
struct Errors {
  int64_t count = 0, num_different = 0, num_bad = 0;
  int64_t first_bad = -1;                                    // in row-major order
  double max_abs = 0, max_rel = 0, max_ulp = 0, cosine = 1;  // the cosine is of the finite ones
};

// Every element must satisfy all of these; an element whose bits are equal does. Those left at infinity do not bind,
// and abs and rel bind together: |error| <= abs + rel * |expected|.
struct Tolerance {
  double abs = std::numeric_limits<double>::infinity();
  double rel = 0;
  double max_ulp = std::numeric_limits<double>::infinity();  // BF16 values from one to the other; of BF16 only
  double max_different_share = 1;                            // of the elements
  double min_cosine = -1;
};

namespace device_testing_internal {

template <typename T>
double ValueOf(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return ToFloat(value);
  }
}

template <typename T>
bool SameValue(const T& a, const T& b) {
  if (std::memcmp(&a, &b, sizeof(T)) == 0) return true;
  if constexpr (!std::is_integral_v<T>) return std::isnan(ValueOf(a)) && std::isnan(ValueOf(b));
  return false;
}

template <size_t kRank, typename T>
std::string IndexOf(Tensor<T, kRank>& tensor, int64_t flat) {
  std::vector<int64_t> index(kRank);
  for (size_t i = kRank; i-- > 0;) {
    index[i] = flat % tensor.dim(i);
    flat /= tensor.dim(i);
  }
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

template <typename T, size_t kRank>
Errors Compare(Tensor<T, kRank>& actual, Tensor<T, kRank>& expected, const Tolerance& tolerance) {
  Errors errors{.count = actual.size()};
  double product = 0, actual_squares = 0, expected_squares = 0;
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double a = ValueOf(actual[i]), e = ValueOf(expected[i]);
    if (std::isfinite(a) && std::isfinite(e)) {
      product += a * e;
      actual_squares += a * a;
      expected_squares += e * e;
    }
    if (SameValue(actual[i], expected[i])) continue;
    ++errors.num_different;
    const double error = std::isfinite(a - e) ? std::abs(a - e) : std::numeric_limits<double>::infinity();
    errors.max_abs = std::max(errors.max_abs, error);
    if (e != 0) errors.max_rel = std::max(errors.max_rel, error / std::abs(e));
    double ulp = 0;
    if constexpr (std::is_same_v<T, Bf16>) ulp = UlpDistance(actual[i], expected[i]);
    errors.max_ulp = std::max(errors.max_ulp, ulp);
    const double bound = tolerance.rel == 0 ? tolerance.abs : tolerance.abs + tolerance.rel * std::abs(e);
    if (std::isfinite(error) && error <= bound && ulp <= tolerance.max_ulp) continue;
    ++errors.num_bad;
    if (errors.first_bad < 0) errors.first_bad = i;
  }
  const double norms = std::sqrt(actual_squares) * std::sqrt(expected_squares);
  errors.cosine = norms == 0 ? (actual_squares == expected_squares ? 1 : 0) : product / norms;
  return errors;
}

}  // namespace device_testing_internal

// Prints what was found, good or bad, and fails the test where the tolerance is not kept.
template <typename T, size_t kRank>
void ExpectClose(absl::string_view what, Tensor<T, kRank> actual, Tensor<T, kRank>& expected,
                 const Tolerance& tolerance) {
  namespace internal = device_testing_internal;
  std::vector<int64_t> shape, expected_shape;
  for (size_t i = 0; i < kRank; ++i) {
    shape.push_back(actual.dim(i));
    expected_shape.push_back(expected.dim(i));
  }
  ASSERT_EQ(shape, expected_shape) << what;
  Errors errors = internal::Compare(actual, expected, tolerance);
  std::string line =
      absl::StrFormat("CHECK %s [%s]: %d of %d differ, max_abs %.3g, max_rel %.3g, max_ulp %g, 1-cosine %.2e", what,
                      absl::StrJoin(shape, "x"), errors.num_different, errors.count, errors.max_abs, errors.max_rel,
                      errors.max_ulp, 1 - errors.cosine);
  if (errors.first_bad >= 0) {
    absl::StrAppend(&line, "; ", errors.num_bad, " BAD, first at ", internal::IndexOf(actual, errors.first_bad), ": ",
                    internal::ValueOf(actual[errors.first_bad]), ", expected ",
                    internal::ValueOf(expected[errors.first_bad]));
  }
  std::printf("%s\n", line.c_str());
  EXPECT_EQ(errors.num_bad, 0) << line;
  EXPECT_LE(static_cast<double>(errors.num_different),
            tolerance.max_different_share * static_cast<double>(errors.count))
      << line;
  EXPECT_GE(errors.cosine, tolerance.min_cosine) << line;
}

// Equal to the last bit, but for the sign and payload of NaN.
template <typename T, size_t kRank>
void ExpectSameBits(absl::string_view what, Tensor<T, kRank> actual, Tensor<T, kRank>& expected) {
  ExpectClose(what, std::move(actual), expected, {.abs = -1});
}

// Bytes and whatever else has no values of its own: equal to the last bit, NaN included.
template <typename T, size_t kRank>
void ExpectSameBytes(absl::string_view what, Tensor<T, kRank> actual, Tensor<T, kRank>& expected) {
  int64_t first = -1, count = 0;
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (int64_t i = 0; i < actual.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(T)) == 0) continue;
    if (count++ == 0) first = i;
  }
  std::printf("CHECK %.*s: %lld of %lld differ\n", static_cast<int>(what.size()), what.data(),
              static_cast<long long>(count), static_cast<long long>(actual.size()));
  if (count == 0) return;
  ADD_FAILURE() << what << ": " << count << " of " << actual.size() << " differ, first at "
                << device_testing_internal::IndexOf(actual, first) << ": "
                << device_testing_internal::ValueOf(actual[first]) << ", expected "
                << device_testing_internal::ValueOf(expected[first]);
}

// The rows `order` of a tensor, in that order: for tests that a row's bits are its own.
template <typename T, size_t kRank>
Tensor<T, kRank> PickRows(Tensor<T, kRank>& tensor, const std::vector<int32_t>& order) {
  std::array<int64_t, kRank> shape;
  for (size_t i = 0; i < kRank; ++i) shape[i] = tensor.dim(i);
  shape[0] = static_cast<int64_t>(order.size());
  Tensor<T, kRank> picked(shape);
  const int64_t width = tensor.dim(0) == 0 ? 0 : tensor.size() / tensor.dim(0);
  for (size_t i = 0; i < order.size(); ++i) {
    std::copy_n(tensor.values().begin() + order[i] * width, width, picked.values().begin() + i * width);
  }
  return picked;
}

}  // namespace tandem::kernels::cuda
