// A checkpoint folder: its configuration and its tensors, by name, wherever they lie.
//
// Tensors are found through model.safetensors.index.json. Where the index is absent, or names a file or a tensor that
// is not there, every *.safetensors header of the folder is read instead; what was odd stands in notes(). Bytes are
// mapped, not copied: opening costs the headers.
// Tested by checkpoint_test.cc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "model/model_config.h"
#include "model/safetensors.h"

namespace tandem::model {

class Checkpoint final {
 public:
  // NOT_FOUND where the folder holds no config.json or no tensors; otherwise LoadModelConfig's and SafetensorsFile's
  // errors, and INVALID_ARGUMENT where two files hold a tensor of one name and no index says which counts.
  static absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  size_t num_tensors() const { return tensors_.size(); }
  // nullptr where there is none.
  const Tensor* Find(absl::string_view name) const;
  // The tensor, if it has one of these dtypes and this shape; INVALID_ARGUMENT naming folder or file, tensor and what
  // was expected otherwise.
  absl::StatusOr<const Tensor*> Require(absl::string_view name, absl::Span<const DType> dtypes,
                                        absl::Span<const int64_t> shape) const;
  // The file that holds a tensor of this checkpoint.
  const std::string& FileOf(const Tensor& tensor) const;
  // All bytes of that file.
  absl::Span<const uint8_t> FileBytesOf(const Tensor& tensor) const;
  // One line each, for the log: what was odd about the folder and how it was read all the same.
  const std::vector<std::string>& notes() const { return notes_; }

  // A digest for handshakes: equal iff configuration, tensor names, dtypes, shapes and (sampled) bytes are. How tensors
  // are spread over files does not count, nor do the MTP layer's copies of embedding and head where they are copies.
  // Of a tensor beyond 4 KiB four runs of 256 bytes are read, so that it costs seconds, not minutes, on 690 GB; it
  // tells releases and fine-tunes apart, not a single flipped bit. 64 hexadecimal digits of SHA-256.
  std::string ModelHash() const;

 private:
  Checkpoint(std::string folder, ModelConfig config) : folder_(std::move(folder)), config_(std::move(config)) {}
  absl::Status IndexTensors();
  // False where the index is absent or wrong; then a note says why and nothing was kept.
  absl::StatusOr<bool> ReadByIndex();
  absl::Status ReadByScan();
  // *.safetensors of the folder, in order.
  absl::StatusOr<std::vector<std::string>> ListTensorFiles() const;
  void NoteUnnamedFiles();
  absl::StatusOr<const SafetensorsFile*> OpenFile(const std::string& name);

  const std::string folder_;
  const ModelConfig config_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;  // by name in the folder
  absl::flat_hash_map<absl::string_view, const Tensor*> tensors_;
  absl::flat_hash_map<const Tensor*, const SafetensorsFile*> file_of_;
  std::vector<std::string> notes_;
  // Where an index that was given up puts each tensor: so that one that is missing is told with its file.
  std::map<std::string, std::string, std::less<>> listed_in_;
};

}  // namespace tandem::model
