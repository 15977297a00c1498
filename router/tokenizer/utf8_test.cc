// Compares the decoder with a list of every character's encoding, made by arithmetic alone.
#include "router/tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/container/flat_hash_set.h"

namespace tandem::router {
namespace {

// The encodings of all Unicode scalar values, and all their proper prefixes.
struct AllCharacters {
  absl::flat_hash_set<std::string> whole;
  absl::flat_hash_set<std::string> prefixes;
};

std::string EncodeByArithmetic(uint32_t c) {
  const auto tail = [c](uint32_t divisor) { return static_cast<char>(128 + c / divisor % 64); };
  if (c < 128) return {static_cast<char>(c)};
  if (c < 2048) return {static_cast<char>(192 + c / 64), tail(1)};
  if (c < 65536) return {static_cast<char>(224 + c / 4096), tail(64), tail(1)};
  return {static_cast<char>(240 + c / 262144), tail(4096), tail(64), tail(1)};
}

bool IsScalarValue(uint32_t c) { return c < 0xD800 || (c > 0xDFFF && c < 0x110000); }

const AllCharacters& Characters() {
  static const AllCharacters* const kCharacters = [] {
    auto* all = new AllCharacters;
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (!IsScalarValue(c)) continue;
      const std::string encoding = EncodeByArithmetic(c);
      all->whole.insert(encoding);
      for (size_t length = 1; length < encoding.size(); ++length) all->prefixes.insert(encoding.substr(0, length));
    }
    return all;
  }();
  return *kCharacters;
}

Utf8Char DecodeByTheList(const std::string& bytes) {
  for (uint32_t length = 1; length <= bytes.size() && length <= 4; ++length) {
    if (Characters().whole.contains(bytes.substr(0, length))) return {Utf8Char::Kind::kValid, length, 0};
  }
  uint32_t longest = 0;
  while (longest < bytes.size() && Characters().prefixes.contains(bytes.substr(0, longest + 1))) ++longest;
  if (longest == bytes.size()) return {Utf8Char::Kind::kIncomplete, longest, 0};
  return {Utf8Char::Kind::kInvalid, std::max(longest, 1u), 0};
}

TEST(Utf8Test, EveryCodePointSurvivesEncodingAndDecoding) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (!IsScalarValue(c)) continue;
    std::string text;
    AppendUtf8(c, &text);
    ASSERT_EQ(text, EncodeByArithmetic(c));
    const Utf8Char decoded = DecodeUtf8(text + "x");
    ASSERT_EQ(decoded.kind, Utf8Char::Kind::kValid);
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.length, text.size());
  }
}

TEST(Utf8Test, EverySequenceOfBorderBytesIsClassifiedAsTheListSays) {
  const int kBytes[] = {0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                        0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFE, 0xFF};
  std::vector<std::string> level = {""};
  for (int length = 1; length <= 4; ++length) {
    std::vector<std::string> next;
    for (const std::string& shorter : level) {
      for (const int byte : kBytes) next.push_back(shorter + static_cast<char>(byte));
    }
    level = std::move(next);
    for (const std::string& bytes : level) {
      const Utf8Char expected = DecodeByTheList(bytes);
      const Utf8Char decoded = DecodeUtf8(bytes);
      ASSERT_EQ(decoded.kind, expected.kind) << testing::PrintToString(bytes);
      ASSERT_EQ(decoded.length, expected.length) << testing::PrintToString(bytes);
    }
  }
}

TEST(Utf8Test, FindsTheFirstInvalidByteWhereverItStands) {
  for (size_t before = 0; before < 20; ++before) {
    const std::string text = std::string(before, 'a') + "é\x80" + std::string(20, 'a');
    EXPECT_EQ(FindInvalidUtf8(text), before + 2);
    EXPECT_EQ(FindInvalidUtf8(std::string(before, 'a') + "€"), before + 3);
    EXPECT_EQ(FindInvalidUtf8(std::string(before, 'a') + "\xE2\x82"), before);
  }
}

TEST(Utf8Test, ReplacesEachMaximalInvalidSubpartOnceAndLeavesAnIncompleteEnd) {
  std::string text;
  // The example of the Unicode Standard, section 3.9, followed by the start of a four-byte character.
  EXPECT_EQ(AppendDecodedUtf8("a\xF1\x80\x80\xE1\x80\xC2"
                              "b\x80"
                              "c\x80\xBF"
                              "d\xF0\x9F\x99",
                              &text),
            13u);
  EXPECT_EQ(text, "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
}

}  // namespace
}  // namespace tandem::router
