// Escaped text, read back by an independent parser, is the text.
#include "router/openai/json_text.h"

#include <string>

#include "boost/json.hpp"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

std::string ReadBack(const std::string& json_text) {
  return std::string(boost::json::value_to<std::string>(boost::json::parse(json_text)));
}

TEST(JsonTextTest, EveryAsciiCharacterSurvivesTheRoundTrip) {
  for (int c = 0; c < 128; ++c) {
    const std::string text = std::string("a") + static_cast<char>(c) + "b";
    EXPECT_EQ(ReadBack(JsonString(text)), text) << "character " << c;
  }
}

TEST(JsonTextTest, NonAsciiIsKeptAsItIs) {
  const std::string text = "grüße 🙂 한글 \u0084 \u0086 \u2027 \u202a \u00a8";
  EXPECT_EQ(JsonString(text), "\"" + text + "\"");
  EXPECT_EQ(ReadBack(JsonString(text)), text);
}

// All that Python's str.splitlines() takes for the end of a line, and httpx with it: one of them would cut an event in
// two.
TEST(JsonTextTest, EscapedTextHasNoEndOfALineOfAnybody) {
  const std::string line_ends[] = {"\n",   "\r",     "\v",     "\f",     "\x1c", "\x1d",
                                   "\x1e", "\u0085", "\u2028", "\u2029", "\r\n"};
  for (const std::string& line_end : line_ends) {
    const std::string text = "a" + line_end + line_end + "é\xe2\x80\x99" + line_end;
    const std::string escaped = JsonString(text);
    EXPECT_EQ(escaped.find(line_end), std::string::npos) << escaped;
    EXPECT_EQ(ReadBack(escaped), text);
  }
  EXPECT_EQ(JsonString("\u0085\u2028\u2029"), R"("\u0085\u2028\u2029")");
}

TEST(JsonTextTest, AppendsAfterWhatIsThere) {
  std::string out = "data: ";
  AppendJsonEscaped(out, "\"x\"\n");
  EXPECT_EQ(out, R"(data: \"x\"\n)");
}

}  // namespace
}  // namespace tandem::router
