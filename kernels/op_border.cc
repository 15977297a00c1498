#include "kernels/op_border.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::kernels {

OpBorder& OpBorder::Ids(absl::string_view argument, const Vector<const int32_t>& ids, int64_t begin, int64_t end) {
  if (!status_.ok()) return *this;
  for (int64_t i = 0; i < ids.shape[0]; ++i) {
    const int64_t id = ids.data[i];
    if (id >= begin && id < end) continue;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(op_, ": ", argument, "[", i, "] is ", id, ", must be in [", begin, ", ", end, ")"));
    return *this;
  }
  return *this;
}

OpBorder& OpBorder::Ids(absl::string_view argument, const Matrix<const int32_t>& ids, int64_t begin, int64_t end) {
  for (int64_t row = 0; ok() && row < ids.shape[0]; ++row) Ids(argument, ids.At(row), begin, end);
  return *this;
}

void OpBorder::RefuseShape(absl::string_view argument, absl::Span<const int64_t> shape,
                           absl::Span<const int64_t> expected) {
  status_ = absl::InvalidArgumentError(absl::StrCat(op_, ": ", argument, " is [", absl::StrJoin(shape, ", "),
                                                    "], must be [", absl::StrJoin(expected, ", "), "]"));
}

void OpBorder::RefuseValue(absl::string_view argument, absl::string_view what, int64_t value, absl::string_view limit) {
  status_ = absl::InvalidArgumentError(
      absl::StrCat(op_, ": ", argument, argument.empty() ? "" : " ", what, " is ", value, ", must be ", limit));
}

void OpBorder::Refuse(absl::string_view argument, absl::string_view what, absl::string_view limit) {
  status_ = absl::InvalidArgumentError(absl::StrCat(op_, ": ", argument, " is ", what, ", must be ", limit));
}

}  // namespace tandem::kernels
