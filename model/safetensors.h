// The safetensors container: [u64 LE N][N bytes JSON header][data].
//
// A file comes from strangers, so parsing believes nothing: the header's length and JSON, every dtype, shape and offset
// are checked, and the tensors must cover the data area without holes or overlap. Afterwards the bytes are read in
// place from a mapping; they are aligned to nothing in particular, so readers copy or load bytewise.
// A file that is cut short by somebody else while it is mapped ends the process with SIGBUS: checkpoints are
// immutable while they are served.
// Tested by safetensors_test.cc and safetensors_fuzz_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/dtype.h"

namespace tandem::model {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;

struct Tensor {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;       // [] is a scalar
  absl::Span<const uint8_t> bytes;  // C-contiguous, little-endian, unaligned
};

// "[2, 3]"
std::string ShapeName(absl::Span<const int64_t> shape);

// What a container's bytes hold; tensors in order of their offset, as views of those bytes.
struct SafetensorsContent {
  std::vector<Tensor> tensors;
  absl::flat_hash_map<std::string, std::string> metadata;
};
// INVALID_ARGUMENT in one line that starts with `what` and names the tensor where there is one.
absl::StatusOr<SafetensorsContent> ParseSafetensors(absl::Span<const uint8_t> file, absl::string_view what);

class SafetensorsFile final {
 public:
  // NOT_FOUND where the file cannot be opened, INVALID_ARGUMENT where it is malformed: one line that names the file
  // and, where there is one, the tensor.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  // The whole file, header included.
  absl::Span<const uint8_t> bytes() const { return {mapping_, num_bytes_}; }
  // In order of their offset.
  const std::vector<Tensor>& tensors() const { return content_.tensors; }
  // nullptr where there is none. Valid as long as the file object.
  const Tensor* Find(absl::string_view name) const;
  const absl::flat_hash_map<std::string, std::string>& metadata() const { return content_.metadata; }

 private:
  SafetensorsFile(std::string path, const uint8_t* mapping, uint64_t num_bytes);

  const std::string path_;
  const uint8_t* const mapping_;
  const uint64_t num_bytes_;
  SafetensorsContent content_;
  absl::flat_hash_map<absl::string_view, const Tensor*> by_name_;
};

// Writes the tensors in the order given, data start padded to 8 bytes, replacing the file. INVALID_ARGUMENT where a
// tensor's bytes do not fit its shape or a name comes twice; UNAVAILABLE where the disk does not take it.
absl::Status WriteSafetensors(const std::string& path, absl::Span<const Tensor> tensors,
                              absl::Span<const std::pair<std::string, std::string>> metadata);

}  // namespace tandem::model
