#include "router/tokenizer/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

std::string Letter(int byte) {
  std::string letter;
  AppendUtf8(ByteLetter(static_cast<uint8_t>(byte)), &letter);
  return letter;
}

TEST(ByteAlphabetTest, EveryByteHasItsOwnLetterAndComesBack) {
  std::set<std::string> letters;
  std::string all_bytes, all_letters;
  for (int byte = 0; byte < 256; ++byte) {
    letters.insert(Letter(byte));
    EXPECT_EQ(BytesFromLetters(Letter(byte)), std::string(1, static_cast<char>(byte)));
    all_bytes.push_back(static_cast<char>(byte));
    all_letters += Letter(byte);
  }
  EXPECT_EQ(letters.size(), 256u);
  EXPECT_EQ(BytesFromLetters(all_letters), all_bytes);
}

TEST(ByteAlphabetTest, SpellsAsTheFormatDoes) {
  EXPECT_EQ(Letter(0), "Ā");
  EXPECT_EQ(Letter('\n'), "Ċ");
  EXPECT_EQ(Letter(' '), "Ġ");
  EXPECT_EQ(Letter('!'), "!");
  EXPECT_EQ(Letter('~'), "~");
  EXPECT_EQ(Letter(0x7F), "ġ");
  EXPECT_EQ(Letter(0xA0), "ł");
  EXPECT_EQ(Letter(0xA1), "¡");
  EXPECT_EQ(Letter(0xAD), "Ń");
  EXPECT_EQ(Letter(0xFF), "ÿ");
  EXPECT_EQ(BytesFromLetters("ðŁĻĤ"), "🙂");
}

TEST(ByteAlphabetTest, LettersOfNoByteSpellNothing) {
  EXPECT_EQ(BytesFromLetters("<｜User｜>"), std::nullopt);
  EXPECT_EQ(BytesFromLetters(" "), std::nullopt);
  EXPECT_EQ(BytesFromLetters("a\u0144"), std::nullopt);
  EXPECT_EQ(BytesFromLetters("\u00AD"), std::nullopt);
  EXPECT_EQ(BytesFromLetters("a\xC3"), std::nullopt);
  EXPECT_EQ(BytesFromLetters(""), "");
}

}  // namespace
}  // namespace tandem::router
