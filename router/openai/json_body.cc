#include "router/openai/json_body.h"

#include <algorithm>
#include <new>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

// Memory for the tree of one body; throws, as Boost.JSON wants it, where the body asks for more than its share.
class BoundedMemory final : public json::memory_resource {
 public:
  explicit BoundedMemory(size_t bytes_max) : bytes_left_(bytes_max) {}

 private:
  void* do_allocate(size_t size, size_t alignment) override {
    if (size > bytes_left_) throw std::bad_alloc();
    bytes_left_ -= size;
    return ::operator new(size, AlignmentOf(alignment));
  }
  void do_deallocate(void* memory, size_t size, size_t alignment) override {
    bytes_left_ += size;
    ::operator delete(memory, AlignmentOf(alignment));
  }
  // Boost.JSON gives a key back with another alignment than it asked for; up to this one both are the same.
  static std::align_val_t AlignmentOf(size_t alignment) {
    return std::align_val_t(std::max<size_t>(alignment, __STDCPP_DEFAULT_NEW_ALIGNMENT__));
  }
  bool do_is_equal(const json::memory_resource& other) const noexcept override { return this == &other; }

  size_t bytes_left_;
};

// memory outlives the result.
absl::StatusOr<json::value> ParseTree(absl::string_view body, json::memory_resource* memory) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  size_t consumed = 0;
  json::error_code error;
  try {
    json::stream_parser parser(memory, options);
    parser.reset(memory);
    consumed = parser.write_some(body.data(), body.size(), error);
    if (!error && consumed == body.size()) parser.finish(error);
    if (!error && consumed < body.size()) error = json::error::extra_data;
    if (!error) return parser.release();
  } catch (const std::exception&) {  // bad_alloc, or length_error of a string
    return WithDetails(absl::InvalidArgumentError("body: has too many values for its size"), "", "invalid_json");
  }
  const bool is_no_ascii = consumed < body.size() && static_cast<unsigned char>(body[consumed]) >= 0x80;
  return WithDetails(
      absl::InvalidArgumentError(absl::StrCat("body: invalid JSON near byte ", consumed, " of ", body.size(), ": ",
                                              error.message(), is_no_ascii ? " (perhaps not UTF-8)" : "")),
      "", "invalid_json");
}

}  // namespace

absl::Status ReadJsonBody(absl::string_view body, const std::function<absl::Status(const json::object&)>& read) {
  BoundedMemory memory(kJsonTreeBytesMin + kJsonTreeBytesPerByte * body.size());
  ASSIGN_OR_RETURN(const json::value root, ParseTree(body, &memory));
  if (root.is_object()) return read(root.get_object());
  return absl::InvalidArgumentError(absl::StrCat("body: must be a JSON object, got ", KindName(root)));
}

}  // namespace tandem::router
