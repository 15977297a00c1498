#include "model/checkpoint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "boost/json/value.hpp"
#include "model/json.h"

namespace tandem::model {
namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = size_t{256} << 20;
constexpr size_t kWholeTensorBytesMax = 4096;
constexpr size_t kSampleBytes = 256;
constexpr size_t kNumSamples = 4;

// SHA-256 over length-prefixed parts.
class Digest final {
 public:
  Digest() : context_(EVP_MD_CTX_new()) {
    TANDEM_CHECK(context_ != nullptr && EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1, "SHA-256 is there");
  }
  ~Digest() { EVP_MD_CTX_free(context_); }
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Add(const void* bytes, uint64_t num_bytes) {
    uint8_t length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(num_bytes >> (8 * i));
    Update(length, sizeof(length));
    Update(bytes, num_bytes);
  }
  void Add(absl::string_view text) { Add(text.data(), text.size()); }
  std::string Finish() {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned num_bytes = 0;
    TANDEM_CHECK(EVP_DigestFinal_ex(context_, digest, &num_bytes) == 1, "SHA-256 ends");
    return std::string(reinterpret_cast<const char*>(digest), num_bytes);
  }

 private:
  void Update(const void* bytes, size_t num_bytes) {
    TANDEM_CHECK(EVP_DigestUpdate(context_, bytes, num_bytes) == 1, "SHA-256 takes bytes");
  }
  EVP_MD_CTX* const context_;
};

std::string TensorDigest(const Tensor& tensor) {
  Digest digest;
  digest.Add(DTypeName(tensor.dtype));
  digest.Add(ShapeName(tensor.shape));
  const size_t num_bytes = tensor.bytes.size();
  if (num_bytes <= kWholeTensorBytesMax) {
    digest.Add(tensor.bytes.data(), num_bytes);
  } else {
    for (size_t i = 0; i < kNumSamples; ++i) {
      digest.Add(&tensor.bytes[(num_bytes - kSampleBytes) / (kNumSamples - 1) * i], kSampleBytes);
    }
  }
  return digest.Finish();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> Checkpoint::Open(const std::string& folder) {
  ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(folder));
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(folder, std::move(config)));
  RETURN_IF_ERROR(checkpoint->IndexTensors());
  return checkpoint;
}

absl::Status Checkpoint::IndexTensors() {
  ASSIGN_OR_RETURN(const bool is_complete, ReadByIndex());
  if (!is_complete) {
    tensors_.clear();
    file_of_.clear();
    RETURN_IF_ERROR(ReadByScan());
  }
  if (tensors_.empty()) return absl::NotFoundError(absl::StrCat(folder_, ": holds no tensors (*.safetensors)"));
  return absl::OkStatus();
}

absl::StatusOr<const SafetensorsFile*> Checkpoint::OpenFile(const std::string& name) {
  auto it = files_.find(name);
  if (it != files_.end()) return it->second.get();
  ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(absl::StrCat(folder_, "/", name)));
  return files_.emplace(name, std::move(file)).first->second.get();
}

absl::StatusOr<bool> Checkpoint::ReadByIndex() {
  const std::string path = absl::StrCat(folder_, "/", kIndexName);
  absl::StatusOr<boost::json::value> json = ReadJsonFile(path, kIndexBytesMax);
  if (absl::IsNotFound(json.status())) return false;  // one unsharded file, usually
  if (!json.ok()) return json.status();
  const boost::json::object* root = json->if_object();
  const boost::json::value* weight_map = root == nullptr ? nullptr : root->if_contains("weight_map");
  if (weight_map == nullptr || !weight_map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map is missing or not an object"));
  }
  auto give_up = [&](auto&&... why) {
    for (const auto& [tensor, file] : weight_map->get_object()) {
      if (file.is_string()) listed_in_[std::string(tensor)] = std::string(file.get_string());
    }
    notes_.push_back(absl::StrCat(kIndexName, " ", why..., "; the headers of all *.safetensors were read instead"));
    return false;
  };
  for (const auto& [key, value] : weight_map->get_object()) {
    if (!value.is_string()) return absl::InvalidArgumentError(absl::StrCat(path, ": weight_map holds a non-string"));
    const std::string tensor_name(key);
    const std::string file_name(value.get_string());
    if (absl::StrContains(file_name, "/")) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": file '", file_name, "' lies outside the folder"));
    }
    absl::StatusOr<const SafetensorsFile*> file = OpenFile(file_name);
    if (absl::IsNotFound(file.status())) return give_up("names ", file_name, ", which is absent");
    if (!file.ok()) return file.status();
    const Tensor* tensor = (*file)->Find(tensor_name);
    if (tensor == nullptr) return give_up("says that ", file_name, " holds '", tensor_name, "', which it does not");
    tensors_.emplace(tensor->name, tensor);
    file_of_.emplace(tensor, *file);
  }
  NoteUnnamedFiles();
  // Writers that add scales to their shards do not always list them.
  for (const auto& [name, file] : files_) {
    for (const Tensor& tensor : file->tensors()) {
      if (tensors_.emplace(tensor.name, &tensor).second) file_of_.emplace(&tensor, file.get());
    }
  }
  return true;
}

absl::StatusOr<std::vector<std::string>> Checkpoint::ListTensorFiles() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().filename());
  }
  if (error) return absl::NotFoundError(absl::StrCat(folder_, ": cannot list: ", error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

// Left over from another release, or the same tensors in another form: the index decides, but somebody may want to
// know.
void Checkpoint::NoteUnnamedFiles() {
  const absl::StatusOr<std::vector<std::string>> names = ListTensorFiles();
  if (!names.ok()) return notes_.push_back(std::string(names.status().message()));
  for (const std::string& name : *names) {
    if (!files_.contains(name)) notes_.push_back(absl::StrCat(name, " is not named by ", kIndexName, " and not read"));
  }
}

absl::Status Checkpoint::ReadByScan() {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, ListTensorFiles());
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const SafetensorsFile* file, OpenFile(name));
    for (const Tensor& tensor : file->tensors()) {
      auto [it, is_new] = tensors_.emplace(tensor.name, &tensor);
      if (!is_new) {
        return absl::InvalidArgumentError(absl::StrCat(folder_, ": tensor '", tensor.name, "' lies in ",
                                                       FileOf(*it->second), " and in ", file->path()));
      }
      file_of_.emplace(&tensor, file);
    }
  }
  return absl::OkStatus();
}

const Tensor* Checkpoint::Find(absl::string_view name) const {
  auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

const std::string& Checkpoint::FileOf(const Tensor& tensor) const {
  auto it = file_of_.find(&tensor);
  TANDEM_CHECK(it != file_of_.end(), tensor.name);
  return it->second->path();
}

absl::Span<const uint8_t> Checkpoint::FileBytesOf(const Tensor& tensor) const {
  auto it = file_of_.find(&tensor);
  TANDEM_CHECK(it != file_of_.end(), tensor.name);
  return it->second->bytes();
}

absl::StatusOr<const Tensor*> Checkpoint::Require(absl::string_view name, absl::Span<const DType> dtypes,
                                                  absl::Span<const int64_t> shape) const {
  const Tensor* tensor = Find(name);
  if (tensor == nullptr) {
    const auto listed = listed_in_.find(std::string(name));
    if (listed == listed_in_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(folder_, ": tensor '", name, "' is missing"));
    }
    const bool is_here = files_.contains(listed->second);
    return absl::InvalidArgumentError(absl::StrCat(folder_, ": tensor '", name, "' is missing: ", kIndexName,
                                                   " puts it into ", listed->second,
                                                   is_here ? ", which does not hold it" : ", which is absent"));
  }
  const bool has_dtype = std::find(dtypes.begin(), dtypes.end(), tensor->dtype) != dtypes.end();
  if (has_dtype && absl::MakeConstSpan(tensor->shape) == shape) return tensor;
  const std::string wanted =
      absl::StrJoin(dtypes, " or ", [](std::string* out, DType dtype) { absl::StrAppend(out, DTypeName(dtype)); });
  return absl::InvalidArgumentError(absl::StrCat(FileOf(*tensor), ": tensor '", name, "' is ", DTypeName(tensor->dtype),
                                                 " ", ShapeName(tensor->shape), ", expected ", wanted, " ",
                                                 ShapeName(shape)));
}

std::string Checkpoint::ModelHash() const {
  std::vector<absl::string_view> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  const std::string mtp = absl::StrCat("model.layers.", config_.num_hidden_layers, ".");
  const std::pair<std::string, absl::string_view> copies[] = {
      {absl::StrCat(mtp, "embed_tokens.weight"), "model.embed_tokens.weight"},
      {absl::StrCat(mtp, "shared_head.head.weight"), "lm_head.weight"}};
  Digest digest;
  digest.Add(config_.CanonicalText());
  for (absl::string_view name : names) {
    const std::string content = TensorDigest(*Find(name));
    const bool is_copy = std::any_of(std::begin(copies), std::end(copies), [&](const auto& copy) {
      const Tensor* original = Find(copy.second);
      return name == copy.first && original != nullptr && content == TensorDigest(*original);
    });
    if (is_copy) continue;
    digest.Add(name);
    digest.Add(content);
  }
  return absl::BytesToHexString(digest.Finish());
}

}  // namespace tandem::model
