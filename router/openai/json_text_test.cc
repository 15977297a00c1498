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
  const std::string text = "grüße 🙂 한글 \u2028";
  EXPECT_EQ(JsonString(text), "\"" + text + "\"");
  EXPECT_EQ(ReadBack(JsonString(text)), text);
}

TEST(JsonTextTest, EscapedTextHasNoLineFeed) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  EXPECT_EQ(JsonString(all).find('\n'), std::string::npos) << "a line feed would end a server-sent event";
}

TEST(JsonTextTest, AppendsAfterWhatIsThere) {
  std::string out = "data: ";
  AppendJsonEscaped(out, "\"x\"\n");
  EXPECT_EQ(out, R"(data: \"x\"\n)");
}

}  // namespace
}  // namespace tandem::router
