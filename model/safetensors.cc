#include "model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"
#include "model/json.h"

namespace tandem::model {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr int kDimensionsMax = 8;
constexpr char kMetadataKey[] = "__metadata__";

uint64_t LoadLittleEndian64(const uint8_t* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | bytes[i];
  return value;
}

// A JSON number that is a whole, non-negative one; 1.0 is not.
std::optional<uint64_t> AsCount(const boost::json::value& value) {
  if (const uint64_t* number = value.if_uint64()) return *number;
  if (const int64_t* number = value.if_int64(); number != nullptr && *number >= 0) return *number;
  return std::nullopt;
}

// Bytes of a tensor; nullopt where they do not fit 63 bits or a 4-bit tensor has half a byte.
std::optional<uint64_t> TensorBytes(DType dtype, absl::Span<const int64_t> shape) {
  unsigned __int128 bits = DTypeBits(dtype);
  for (int64_t dim : shape) {
    bits *= static_cast<uint64_t>(dim);
    if (bits >> 66 != 0) return std::nullopt;
  }
  if (bits % 8 != 0) return std::nullopt;
  return static_cast<uint64_t>(bits / 8);
}

struct ParsedEntry {
  Tensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

absl::StatusOr<ParsedEntry> ParseEntry(absl::string_view name, const boost::json::value& value, uint64_t data_bytes) {
  auto fault = [&](auto&&... what) {
    return absl::InvalidArgumentError(absl::StrCat("tensor '", absl::CHexEscape(name), "': ", what...));
  };
  const boost::json::object* object = value.if_object();
  if (object == nullptr) return fault("its entry is not an object");
  ParsedEntry entry;
  entry.tensor.name = std::string(name);

  const boost::json::value* dtype = object->if_contains("dtype");
  if (dtype == nullptr || !dtype->is_string()) return fault("dtype is missing or not a string");
  const absl::string_view dtype_name(dtype->get_string().data(), dtype->get_string().size());
  std::optional<DType> parsed_dtype = DTypeFromName(dtype_name);
  if (!parsed_dtype) return fault("dtype '", absl::CHexEscape(dtype_name), "' is not known");
  entry.tensor.dtype = *parsed_dtype;

  const boost::json::value* shape = object->if_contains("shape");
  if (shape == nullptr || !shape->is_array()) return fault("shape is missing or not an array");
  if (shape->get_array().size() > kDimensionsMax) {
    return fault("shape has ", shape->get_array().size(), " dimensions, limit ", kDimensionsMax);
  }
  for (const boost::json::value& dim : shape->get_array()) {
    std::optional<uint64_t> count = AsCount(dim);
    if (!count || *count > uint64_t{1} << 62) return fault("shape holds something that is not a size");
    entry.tensor.shape.push_back(static_cast<int64_t>(*count));
  }

  const boost::json::value* offsets = object->if_contains("data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2) {
    return fault("data_offsets is missing or not a pair");
  }
  std::optional<uint64_t> begin = AsCount(offsets->get_array()[0]);
  std::optional<uint64_t> end = AsCount(offsets->get_array()[1]);
  if (!begin || !end || *begin > *end) return fault("data_offsets is not a range");
  if (*end > data_bytes) return fault("ends at byte ", *end, " of the data, which has ", data_bytes, " bytes");
  entry.begin = *begin;
  entry.end = *end;

  std::optional<uint64_t> num_bytes = TensorBytes(entry.tensor.dtype, entry.tensor.shape);
  if (!num_bytes || *num_bytes != *end - *begin) {
    return fault(dtype_name, " ", ShapeName(entry.tensor.shape), " does not fill its ", *end - *begin, " bytes");
  }
  return entry;
}

}  // namespace

std::string ShapeName(absl::Span<const int64_t> shape) { return absl::StrCat("[", absl::StrJoin(shape, ", "), "]"); }

absl::StatusOr<SafetensorsContent> ParseSafetensors(absl::Span<const uint8_t> file, absl::string_view what) {
  auto fault = [&](auto&&... why) { return absl::InvalidArgumentError(absl::StrCat(what, ": ", why...)); };
  if (file.size() < kLengthBytes) return fault("has ", file.size(), " bytes, too short for safetensors");
  const uint64_t header_bytes = LoadLittleEndian64(file.data());
  if (header_bytes > kSafetensorsHeaderBytesMax) {
    return fault("header of ", header_bytes, " bytes, limit ", kSafetensorsHeaderBytesMax);
  }
  if (header_bytes > file.size() - kLengthBytes) {
    return fault("cut short: header of ", header_bytes, " bytes in a file of ", file.size());
  }
  const absl::string_view header(reinterpret_cast<const char*>(file.data() + kLengthBytes), header_bytes);
  if (header.empty() || header[0] != '{') return fault("header does not start with '{'");
  ASSIGN_OR_RETURN(boost::json::value json, ParseJson(header, what));

  const uint8_t* data = file.data() + kLengthBytes + header_bytes;
  const uint64_t data_bytes = file.size() - kLengthBytes - header_bytes;
  SafetensorsContent content;
  std::vector<ParsedEntry> entries;
  for (const auto& [key, value] : json.get_object()) {
    const absl::string_view name(key.data(), key.size());
    if (name == kMetadataKey) {
      if (!value.is_object()) return fault("__metadata__ is not an object");
      for (const auto& [metadata_key, text] : value.get_object()) {
        if (!text.is_string()) return fault("__metadata__ maps a name to something that is not a string");
        content.metadata.emplace(metadata_key, std::string(text.get_string()));
      }
      continue;
    }
    absl::StatusOr<ParsedEntry> entry = ParseEntry(name, value, data_bytes);
    if (!entry.ok()) return fault(entry.status().message());
    entry->tensor.bytes = absl::MakeConstSpan(data + entry->begin, entry->end - entry->begin);
    entries.push_back(*std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const ParsedEntry& a, const ParsedEntry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  uint64_t covered = 0;
  for (const ParsedEntry& entry : entries) {
    if (entry.begin != covered) {
      return fault("tensor '", absl::CHexEscape(entry.tensor.name), "': begins at byte ", entry.begin, " of the data, ",
                   entry.begin < covered ? "inside the tensor before it, which ends at " : "leaving a hole from ",
                   covered);
    }
    covered = entry.end;
  }
  if (covered != data_bytes) return fault("tensors end at byte ", covered, " of ", data_bytes, " bytes of data");

  content.tensors.reserve(entries.size());
  for (ParsedEntry& entry : entries) content.tensors.push_back(std::move(entry.tensor));
  return content;
}

SafetensorsFile::SafetensorsFile(std::string path, const uint8_t* mapping, uint64_t num_bytes)
    : path_(std::move(path)), mapping_(mapping), num_bytes_(num_bytes) {}

SafetensorsFile::~SafetensorsFile() { ::munmap(const_cast<uint8_t*>(mapping_), num_bytes_); }

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  struct stat stat = {};
  if (::fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
    ::close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const uint64_t num_bytes = static_cast<uint64_t>(stat.st_size);
  if (num_bytes == 0) {  // cannot be mapped
    ::close(fd);
    return ParseSafetensors({}, path).status();
  }
  void* mapping = ::mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int mmap_errno = errno;
  ::close(fd);
  if (mapping == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot map ", num_bytes, " bytes: ", std::strerror(mmap_errno)));
  }
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, static_cast<const uint8_t*>(mapping), num_bytes));
  ASSIGN_OR_RETURN(file->content_, ParseSafetensors(file->bytes(), path));
  for (const Tensor& tensor : file->content_.tensors) file->by_name_.emplace(tensor.name, &tensor);
  return file;
}

const Tensor* SafetensorsFile::Find(absl::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

absl::Status WriteSafetensors(const std::string& path, absl::Span<const Tensor> tensors,
                              absl::Span<const std::pair<std::string, std::string>> metadata) {
  boost::json::object header;
  if (!metadata.empty()) {
    boost::json::object& pairs = header[kMetadataKey].emplace_object();
    for (const auto& [key, value] : metadata) pairs[key] = value;
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    std::optional<uint64_t> num_bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!num_bytes || *num_bytes != tensor.bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor '", tensor.name, "': ", DTypeName(tensor.dtype),
                                                     " ", ShapeName(tensor.shape), " is not ", tensor.bytes.size(),
                                                     " bytes"));
    }
    if (tensor.name == kMetadataKey || header.contains(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor name '", tensor.name, "' is taken"));
    }
    const absl::string_view dtype = DTypeName(tensor.dtype);
    header[tensor.name] = {{"dtype", boost::json::string_view(dtype.data(), dtype.size())},
                           {"shape", boost::json::array(tensor.shape.begin(), tensor.shape.end())},
                           {"data_offsets", {offset, offset + *num_bytes}}};
    offset += *num_bytes;
  }
  std::string text = boost::json::serialize(header);
  while (text.size() % 8 != 0) text.push_back(' ');
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot create: ", std::strerror(errno)));
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>(text.size() >> (8 * i)));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  for (const Tensor& tensor : tensors) {
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()), static_cast<std::streamsize>(tensor.bytes.size()));
  }
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot write: ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace tandem::model
