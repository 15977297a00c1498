#include "router/tokenizer/byte_alphabet.h"

#include <array>

#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kNumOthers = 68;

struct Alphabet {
  std::array<uint32_t, 256> letters{};
  std::array<uint8_t, kNumOthers> others{};  // others[i] is spelled U+0100 + i
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  int num_others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (StandsForItself(byte)) {
      alphabet.letters[byte] = byte;
    } else {
      alphabet.letters[byte] = 0x100 + num_others;
      alphabet.others[num_others++] = byte;
    }
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();
static_assert(kAlphabet.letters[' '] == 0x120 && kAlphabet.letters['\n'] == 0x10A);
static_assert(kAlphabet.others[kNumOthers - 1] == 0xAD);

}  // namespace

uint32_t ByteLetter(uint8_t byte) { return kAlphabet.letters[byte]; }

std::optional<std::string> BytesFromLetters(absl::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  while (!spelling.empty()) {
    const Utf8Char letter = DecodeUtf8(spelling);
    if (letter.kind != Utf8Char::Kind::kValid) return std::nullopt;
    if (letter.code_point < 0x100) {
      if (!StandsForItself(static_cast<int>(letter.code_point))) return std::nullopt;
      bytes.push_back(static_cast<char>(letter.code_point));
    } else {
      if (letter.code_point >= 0x100 + kNumOthers) return std::nullopt;
      bytes.push_back(static_cast<char>(kAlphabet.others[letter.code_point - 0x100]));
    }
    spelling.remove_prefix(letter.length);
  }
  return bytes;
}

}  // namespace tandem::router
