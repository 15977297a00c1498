// Input: a tokenizer.json. Reading it must end in a tokenizer that works or in an error, whatever it says.
#include <cstdint>
#include <cstdlib>

#include "router/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using tandem::router::Tokenizer;
  const absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer =
      Tokenizer::Parse(absl::string_view(reinterpret_cast<const char*>(bytes), size));
  if (!tokenizer.ok()) {
    if (tokenizer.status().code() != absl::StatusCode::kInvalidArgument) std::abort();
    return 0;
  }
  const std::string text = "Hello, 世界 <think>\n123 🙂";
  const auto ids = (*tokenizer)->Encode(text, Tokenizer::AddedTokens::kMatch);
  // A pattern may be too much for the matcher; that is the one error valid text may meet.
  if (ids.ok() ? (*tokenizer)->Decode(*ids) != text : ids.status().code() != absl::StatusCode::kInternal) std::abort();
  return 0;
}
