#include "model/token_mask/token_bytes.h"

#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json.hpp"
#include "model/json.h"

namespace tandem::model {
namespace {

namespace json = boost::json;

constexpr size_t kFileBytesMax = size_t{64} << 20;

// Byte-level BPE spells each byte as one printable character: printable Latin-1 as itself, the others from U+0100 on in
// order. All of them are below U+0180.
std::array<int, 0x180> MakeByteOfLetter() {
  std::array<int, 0x180> byte_of_letter;
  byte_of_letter.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    byte_of_letter[is_printable ? byte : next++] = byte;
  }
  return byte_of_letter;
}

// False where a character is none of the alphabet.
bool DecodeLetters(absl::string_view letters, std::string* bytes) {
  static const std::array<int, 0x180> kByteOfLetter = MakeByteOfLetter();
  for (size_t i = 0; i < letters.size(); ++i) {
    uint32_t letter = static_cast<unsigned char>(letters[i]);
    if (letter >= 0x80) {
      if (letter < 0xC2 || letter > 0xC5 || i + 1 == letters.size()) return false;
      letter = (letter & 0x1F) << 6 | (static_cast<unsigned char>(letters[++i]) & 0x3F);
    }
    if (kByteOfLetter[letter] < 0) return false;
    bytes->push_back(static_cast<char>(kByteOfLetter[letter]));
  }
  return true;
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", what));
}

absl::StatusOr<int64_t> IdOf(const json::value& value, absl::string_view where, int vocab_size) {
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() >= vocab_size) {
    return Malformed(
        absl::StrCat(where, ": id is ", json::serialize(value), ", must be an id of the vocabulary of ", vocab_size));
  }
  return value.get_int64();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseTokenBytes(absl::string_view tokenizer_json, int vocab_size) {
  ASSIGN_OR_RETURN(const json::value root, ParseJson(tokenizer_json, "tokenizer.json"));
  const json::object* file = root.if_object();
  const json::value* model = file == nullptr ? nullptr : file->if_contains("model");
  const json::object* bpe = model == nullptr ? nullptr : model->if_object();
  const json::value* vocab = bpe == nullptr ? nullptr : bpe->if_contains("vocab");
  if (vocab == nullptr || !vocab->is_object()) return Malformed("model.vocab is missing");

  std::vector<std::string> bytes(vocab_size);
  std::vector<bool> is_added(vocab_size, false);
  if (const json::value* added = file->if_contains("added_tokens"); added != nullptr && added->is_array()) {
    for (const json::value& token : added->get_array()) {
      const json::value* id = token.is_object() ? token.get_object().if_contains("id") : nullptr;
      if (id == nullptr) return Malformed("added_tokens: a token without an id");
      ASSIGN_OR_RETURN(const int64_t checked, IdOf(*id, "added_tokens", vocab_size));
      is_added[checked] = true;
    }
  }
  for (const auto& [letters, value] : vocab->get_object()) {
    ASSIGN_OR_RETURN(const int64_t id, IdOf(value, "model.vocab", vocab_size));
    if (is_added[id]) continue;
    const absl::string_view text(letters.data(), letters.size());
    if (text.empty() || !DecodeLetters(text, &bytes[id])) {
      return Malformed(absl::StrCat("model.vocab: token ", id, " is not written in the byte alphabet"));
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<std::string>> LoadTokenBytes(const std::string& model_path, int vocab_size) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(absl::StrCat(model_path, "/tokenizer.json"), kFileBytesMax));
  return ParseTokenBytes(text, vocab_size);
}

}  // namespace tandem::model
