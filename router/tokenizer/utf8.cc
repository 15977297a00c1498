#include "router/tokenizer/utf8.h"

#include <cstring>

namespace tandem::router {
namespace {

struct LeadByte {
  uint32_t length;  // of the whole character, 0 for a byte that begins none
  uint8_t second_min;
  uint8_t second_max;
};

LeadByte ReadLeadByte(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool IsAscii8(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Char DecodeUtf8(absl::string_view bytes) {
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  const LeadByte lead = ReadLeadByte(first);
  if (lead.length == 0) return {Utf8Char::Kind::kInvalid, 1, 0};
  if (lead.length == 1) return {Utf8Char::Kind::kValid, 1, first};
  uint32_t code_point = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Char::Kind::kIncomplete, i, 0};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) return {Utf8Char::Kind::kInvalid, i, 0};
    code_point = code_point << 6 | (byte & 0x3Fu);
  }
  return {Utf8Char::Kind::kValid, lead.length, code_point};
}

size_t FindInvalidUtf8(absl::string_view bytes) {
  size_t offset = 0;
  while (offset < bytes.size()) {
    if (bytes.size() - offset >= 8 && IsAscii8(bytes.data() + offset)) {
      offset += 8;
      continue;
    }
    const Utf8Char next = DecodeUtf8(bytes.substr(offset));
    if (next.kind != Utf8Char::Kind::kValid) return offset;
    offset += next.length;
  }
  return bytes.size();
}

size_t AppendDecodedUtf8(absl::string_view bytes, std::string* text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const absl::string_view rest = bytes.substr(at);
    const size_t num_valid = FindInvalidUtf8(rest);
    text->append(rest.data(), num_valid);
    at += num_valid;
    if (num_valid == rest.size()) break;
    const Utf8Char next = DecodeUtf8(rest.substr(num_valid));
    if (next.kind == Utf8Char::Kind::kIncomplete) break;
    text->append(kReplacementCharacter.data(), kReplacementCharacter.size());
    at += next.length;
  }
  return at;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto continuation = [code_point](int shift) { return static_cast<char>(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    text->push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text->push_back(static_cast<char>(0xC0 | code_point >> 6));
    text->push_back(continuation(0));
  } else if (code_point < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | code_point >> 12));
    text->push_back(continuation(6));
    text->push_back(continuation(0));
  } else {
    text->push_back(static_cast<char>(0xF0 | code_point >> 18));
    text->push_back(continuation(12));
    text->push_back(continuation(6));
    text->push_back(continuation(0));
  }
}

}  // namespace tandem::router
