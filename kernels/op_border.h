// What every op does first: compare its arguments with the shapes that ops.h promises. The first fault wins; nothing is
// formatted or allocated while all is well.
//
//   OpBorder border("RmsNorm");
//   border.Shape("y", args.y, {num_rows, dim}).Require(dim % 16 == 0, "dim", dim, "a multiple of 16");
//   RETURN_IF_ERROR(border.status());
//
// Tested by op_border_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels {

class OpBorder final {
 public:
  explicit OpBorder(absl::string_view op) : op_(op) {}

  // view has this shape, a contiguous last dimension, and memory where it has elements.
  template <typename T, size_t kRank>
  OpBorder& Shape(absl::string_view argument, const TensorView<T, kRank>& view,
                  const std::array<int64_t, kRank>& expected) {
    if (!status_.ok()) return *this;
    if (view.shape != expected) {
      RefuseShape(argument, view.shape, expected);
    } else if (view.num_elements() != 0) {
      if (view.data == nullptr) Refuse(argument, "null", "memory");
      if (view.shape[kRank - 1] > 1 && view.strides[kRank - 1] != 1) {
        RefuseValue(argument, "last stride", view.strides[kRank - 1], "1");
      }
    }
    return *this;
  }
  // Otherwise: "op: what is value, must be limit".
  OpBorder& Require(bool holds, absl::string_view what, int64_t value, absl::string_view limit) {
    if (!holds && status_.ok()) RefuseValue("", what, value, limit);
    return *this;
  }
  // Every value lies in [begin, end); the message names the first that does not.
  OpBorder& Ids(absl::string_view argument, const Vector<const int32_t>& ids, int64_t begin, int64_t end);
  OpBorder& Ids(absl::string_view argument, const Matrix<const int32_t>& ids, int64_t begin, int64_t end);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  void RefuseShape(absl::string_view argument, absl::Span<const int64_t> shape, absl::Span<const int64_t> expected);
  void RefuseValue(absl::string_view argument, absl::string_view what, int64_t value, absl::string_view limit);
  void Refuse(absl::string_view argument, absl::string_view what, absl::string_view limit);

  const absl::string_view op_;
  absl::Status status_;
};

}  // namespace tandem::kernels
