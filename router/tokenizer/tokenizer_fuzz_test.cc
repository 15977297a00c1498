// Input: a byte that says how to cut, then text. Text that is UTF-8 must come back from its ids, whole and in deltas,
// also when a part of it is content; other text must be refused.
#include <cstdint>
#include <cstdlib>

#include "router/tokenizer/incremental_detokenizer.h"
#include "router/tokenizer/small_tokenizer.h"
#include "router/tokenizer/utf8.h"

namespace {

using tandem::router::IncrementalDetokenizer;
using tandem::router::MarkedText;
using tandem::router::Tokenizer;
using Ids = std::vector<tandem::router::TokenId>;

void Require(bool condition) {
  if (!condition) std::abort();
}

const Tokenizer& SmallTokenizer() {
  static const Tokenizer* const kTokenizer = tandem::router::MakeSmallTokenizer().release();
  return *kTokenizer;
}

std::string DecodeInDeltas(const Ids& ids, size_t delta_size) {
  IncrementalDetokenizer detokenizer(SmallTokenizer());
  std::string text;
  for (size_t at = 0; at < ids.size(); at += delta_size) {
    detokenizer.Append(absl::MakeConstSpan(ids).subspan(at, delta_size), &text);
  }
  detokenizer.Finish(&text);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 1) return 0;
  const std::string text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const bool is_utf8 = tandem::router::FindInvalidUtf8(text) == text.size();
  for (const auto added_tokens : {Tokenizer::AddedTokens::kMatch, Tokenizer::AddedTokens::kIgnore}) {
    const absl::StatusOr<Ids> ids = SmallTokenizer().Encode(text, added_tokens);
    Require(ids.ok() == is_utf8);
    if (!is_utf8) continue;
    Require(SmallTokenizer().Decode(*ids) == text);
    Require(DecodeInDeltas(*ids, 1 + bytes[0] % 4) == text);
  }
  MarkedText prompt;
  const size_t border = std::min<size_t>(bytes[0], text.size());
  prompt.AppendMarkup(text.substr(0, border));
  prompt.AppendContent(text.substr(border));
  const absl::StatusOr<Ids> ids = SmallTokenizer().Encode(prompt);
  Require(ids.ok() == is_utf8);
  Require(!is_utf8 || SmallTokenizer().Decode(*ids) == text);

  // The bytes as ids of single bytes: any stream of them decodes the same in any deltas.
  Ids ids_of_bytes;
  for (const char byte : text) ids_of_bytes.push_back(3u + static_cast<uint8_t>(byte));
  Require(DecodeInDeltas(ids_of_bytes, 1 + bytes[0] % 4) == SmallTokenizer().Decode(ids_of_bytes));
  Require(!is_utf8 || SmallTokenizer().Decode(ids_of_bytes) == text);
  return 0;
}
