// Escapes and classes: each read as Python's re and ECMA-262 both read it, and never beyond that.
#include "router/constraints/char_syntax.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

using Places = SyntaxCursor::Places;

CharClass Brackets(absl::string_view text) {
  SyntaxCursor cursor(text, Places::kCharacters);
  const absl::StatusOr<CharClass> chars = ReadBrackets(&cursor);
  EXPECT_TRUE(chars.ok()) << text << ": " << chars.status();
  EXPECT_TRUE(cursor.IsAtEnd()) << text;
  return chars.ok() ? *chars : CharClass();
}

std::string Error(absl::string_view text) {
  SyntaxCursor cursor(text, Places::kCharacters);
  return std::string(ReadBrackets(&cursor).status().message());
}

CharClass Ranges(std::vector<CharClass::Range> ranges) { return CharClass(std::move(ranges)); }

TEST(CharSyntaxTest, Classes) {
  EXPECT_EQ(Brackets("[abc]"), Ranges({{'a', 'c'}}));
  EXPECT_EQ(Brackets("[a-cx-z_]"), Ranges({{'_', '_'}, {'a', 'c'}, {'x', 'z'}}));
  EXPECT_EQ(Brackets("[^a-c]"), Ranges({{'a', 'c'}}).Complement());
  EXPECT_EQ(Brackets("[a-]"), Ranges({{'a', 'a'}, {'-', '-'}}));
  EXPECT_EQ(Brackets("[-a]"), Ranges({{'a', 'a'}, {'-', '-'}}));
  EXPECT_EQ(Brackets(R"([\]\-\\^])"), CharClass::AnyOf("]-\\^"));
  EXPECT_EQ(Brackets(R"([\n\t\x41\u00e9\u{1F600}\U0001F601])"),
            Ranges({{'\n', '\n'}, {'\t', '\t'}, {'A', 'A'}, {0xE9, 0xE9}, {0x1F600, 0x1F601}}));
  EXPECT_EQ(Brackets("[ä-ü世]"), Ranges({{0xE4, 0xFC}, {0x4E16, 0x4E16}}));
  EXPECT_EQ(Brackets(R"([\x00-\x1f])"), Ranges({{0, 0x1F}}));
}

// \d is ASCII to ECMA-262 and every decimal digit of Unicode to Python: both take 0 to 9, and neither takes x for one.
TEST(CharSyntaxTest, WhereDialectsDifferOnlyWhatAllTakeIsThere) {
  EXPECT_EQ(Brackets(R"([\d])"), Ranges({{'0', '9'}}));
  EXPECT_FALSE(Brackets(R"([\w])").Contains(0xE9));
  EXPECT_FALSE(Brackets(R"([\W])").Contains(0xE9));
  EXPECT_FALSE(Brackets(R"([\D])").Contains(0x0663)) << "an Arabic digit";
  EXPECT_FALSE(Brackets(R"([^\d])").Contains(0x0663));
  EXPECT_TRUE(Brackets(R"([^\dx])").Contains('y'));
  EXPECT_FALSE(Brackets(R"([^\dx])").Contains('x'));
  for (const uint32_t space : {0x1Cu, 0x85u, 0xA0u, 0x2003u, 0x3000u, 0xFEFFu}) {
    EXPECT_FALSE(Brackets(R"([\s])").Contains(space)) << space;
    EXPECT_FALSE(Brackets(R"([\S])").Contains(space)) << space;
    EXPECT_FALSE(Brackets(R"([^\s,])").Contains(space)) << space;
  }
  for (const uint32_t letter : {uint32_t{'a'}, 0xE9u, 0x4E16u, 0x1F600u}) {
    EXPECT_TRUE(Brackets(R"([\S])").Contains(letter)) << letter;
    EXPECT_TRUE(Brackets(R"([^\s,])").Contains(letter)) << letter;
  }
  EXPECT_FALSE(AnyButLineEnds().Contains('\n'));
  EXPECT_FALSE(AnyButLineEnds().Contains(0x2028));
  EXPECT_TRUE(AnyButLineEnds().Contains(0x1F600));
}

TEST(CharSyntaxTest, ErrorsSayWhatAndWhere) {
  EXPECT_EQ(Error("[a"), "a class without its end at character 2");
  EXPECT_EQ(Error("[]"), "a class without characters at character 0");
  EXPECT_EQ(Error("[c-a]"), "a range whose end is below its beginning, or is a class at character 4");
  EXPECT_EQ(Error(R"([a-\d])"), "a range whose end is below its beginning, or is a class at character 5");
  EXPECT_EQ(Error(R"([\b])"), "\\b is not supported at character 1");
  EXPECT_EQ(Error(R"([\xg])"), "a hexadecimal digit is missing at character 3");
  EXPECT_EQ(Error(R"([a\ud800])"), "half a surrogate pair is not supported at character 2");
  EXPECT_EQ(Error(R"([\u{110000}])"), "a character beyond U+10FFFF at character 1");
  EXPECT_EQ(Error("[\\"), "a \\ at the end at character 1");
  const SyntaxCursor lines("ab\nä cd", Places::kLines);
  EXPECT_EQ(lines.Bad("x", 5).message(), "x at line 2, column 3");
  EXPECT_EQ(lines.Bad("x").message(), "x at line 1, column 1");
}

TEST(CharSyntaxTest, CountsAreBounded) {
  const auto read = [](absl::string_view text) {
    SyntaxCursor cursor(text, Places::kCharacters);
    return ReadCounts(&cursor);
  };
  EXPECT_EQ(read("{3}")->max, 3);
  EXPECT_EQ(read("{3,}")->max, -1);
  EXPECT_EQ(read("{3,10000}")->max, 10000);
  for (const char* text : {"{", "{}", "{,3}", "{3", "{3,2}", "{10001}", "{99999999999999999999}", "{-1}", "{3,x}"}) {
    EXPECT_EQ(read(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tandem::router
