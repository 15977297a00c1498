// Proves that ParseJson takes JSON, refuses what is not, and sees a key that comes twice at any depth. The grammar
// itself is Boost's and tested there.
#include "model/json.h"

#include "gtest/gtest.h"

namespace tandem::model {
namespace {

TEST(ParseJsonTest, TakesADocument) {
  auto value = ParseJson(R"({"a": [1, 2.5, {"b": null}], "c": "d"})", "doc");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->at("a").at(0).as_int64(), 1);
  EXPECT_EQ(value->at("c").as_string(), "d");
}

TEST(ParseJsonTest, NamesWhereTheFaultIs) {
  auto value = ParseJson(R"({"a": 1,})", "file.json");
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(value.status().message().find("file.json: not JSON"), std::string::npos) << value.status();
  EXPECT_NE(value.status().message().find("at byte 8"), std::string::npos) << value.status();
}

TEST(ParseJsonTest, RefusesAKeyThatComesTwiceAtAnyDepthAndInAnySpelling) {
  for (const char* text : {R"({"a":1,"a":1})", R"([{"x":{"k":1,"j":2,"k":3}}])", R"({"ab":1,"\u0061b":2})"}) {
    auto value = ParseJson(text, "doc");
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_NE(value.status().message().find("appears twice"), std::string::npos) << value.status();
  }
}

TEST(ParseJsonTest, AllowsEqualKeysInDifferentObjects) {
  EXPECT_TRUE(ParseJson(R"({"a":{"k":1},"b":{"k":1},"k":[{"k":1},{"k":2}]})", "doc").ok());
}

TEST(ParseJsonTest, RefusesDeepNestingCommentsAndTrailingText) {
  EXPECT_FALSE(ParseJson(std::string(100, '[') + std::string(100, ']'), "doc").ok());
  EXPECT_TRUE(ParseJson(std::string(20, '[') + std::string(20, ']'), "doc").ok());
  EXPECT_FALSE(ParseJson("{} // no", "doc").ok());
  EXPECT_FALSE(ParseJson("{}{}", "doc").ok());
  EXPECT_FALSE(ParseJson("", "doc").ok());
  EXPECT_FALSE(ParseJson("NaN", "doc").ok());
}

TEST(ReadJsonFileTest, NamesAFileThatIsAbsent) {
  auto value = ReadJsonFile("/nonexistent/config.json", 100);
  EXPECT_EQ(value.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(value.status().message().find("/nonexistent/config.json"), std::string::npos);
}

}  // namespace
}  // namespace tandem::model
