#include "model/json.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json/basic_parser_impl.hpp"
#include "boost/json/parse.hpp"

namespace tandem::model {
namespace {

constexpr int kDepthMax = 32;

// Sees every key of a document and remembers the first that its object has already. Boost's own value builder keeps
// the last of two equal keys without a word.
struct DuplicateKeyFinder {
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  using Error = boost::json::error_code;
  using Text = boost::json::string_view;

  std::vector<absl::flat_hash_set<std::string>> open_objects;
  std::string key;
  std::string duplicate;
  bool has_duplicate = false;

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_object_begin(Error&) {
    open_objects.emplace_back();
    return true;
  }
  bool on_object_end(size_t, Error&) {
    open_objects.pop_back();
    return true;
  }
  bool on_array_begin(Error&) { return true; }
  bool on_array_end(size_t, Error&) { return true; }
  bool on_key_part(Text part, size_t, Error&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(Text part, size_t, Error&) {
    key.append(part.data(), part.size());
    if (!has_duplicate && !open_objects.back().insert(key).second) {
      has_duplicate = true;
      duplicate = key;
    }
    key.clear();
    return true;
  }
  bool on_string_part(Text, size_t, Error&) { return true; }
  bool on_string(Text, size_t, Error&) { return true; }
  bool on_number_part(Text, Error&) { return true; }
  bool on_int64(int64_t, Text, Error&) { return true; }
  bool on_uint64(uint64_t, Text, Error&) { return true; }
  bool on_double(double, Text, Error&) { return true; }
  bool on_bool(bool, Error&) { return true; }
  bool on_null(Error&) { return true; }
  bool on_comment_part(Text, Error&) { return true; }
  bool on_comment(Text, Error&) { return true; }
};

}  // namespace

absl::StatusOr<boost::json::value> ParseJson(absl::string_view text, absl::string_view what) {
  boost::json::parse_options options;
  options.max_depth = kDepthMax;
  boost::json::basic_parser<DuplicateKeyFinder> finder(options);
  boost::json::error_code error;
  size_t consumed = finder.write_some(false, text.data(), text.size(), error);
  if (!error && consumed < text.size()) error = boost::json::error::extra_data;
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not JSON: ", error.message(), " at byte ", consumed));
  }
  if (finder.handler().has_duplicate) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": key '", absl::CHexEscape(finder.handler().duplicate), "' appears twice"));
  }
  boost::json::value value = boost::json::parse(boost::json::string_view(text.data(), text.size()), error, {}, options);
  if (error) return absl::InvalidArgumentError(absl::StrCat(what, ": not JSON: ", error.message()));
  return value;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  std::string text;
  char buffer[1 << 14];
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": larger than ", max_bytes, " bytes"));
    }
  }
  if (file.bad() || !file.eof()) return absl::NotFoundError(absl::StrCat(path, ": cannot read"));
  return text;
}

absl::StatusOr<boost::json::value> ReadJsonFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(std::string text, ReadWholeFile(path, max_bytes));
  return ParseJson(text, path);
}

}  // namespace tandem::model
