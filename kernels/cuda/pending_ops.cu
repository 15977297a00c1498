// The ops of ops.h that no other file here defines yet: each answers UNIMPLEMENTED with its name, so that whatever
// calls the border links. Who adds an op deletes its line here in the same commit; the file goes with its last line.
#include "absl/strings/str_cat.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {
namespace {

absl::Status Pending(absl::string_view op) {
  return absl::UnimplementedError(absl::StrCat(op, ": there is no CUDA kernel for this op yet"));
}

}  // namespace

absl::Status IndexLogits(Stream, const IndexLogitsArgs&) { return Pending("IndexLogits"); }
absl::Status TopK(Stream, const TopKArgs&) { return Pending("TopK"); }
absl::Status SparseMla(Stream, const SparseMlaArgs&) { return Pending("SparseMla"); }

}  // namespace tandem::kernels::cuda
