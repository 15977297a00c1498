// What the model is told of the form of its answer, and what is refused at which field.
#include "router/openai/response_format.h"

#include <string>

#include "gtest/gtest.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

absl::StatusOr<std::optional<ResponseFormat>> Parse(const std::string& body) {
  const boost::json::value root = boost::json::parse(body);
  return ParseResponseFormat(root.get_object(), body);
}

std::string Error(const std::string& body) {
  const absl::Status status = Parse(body).status();
  EXPECT_EQ(HttpStatusOf(status), 400) << body;
  return std::string(status.message());
}

TEST(ResponseFormatTest, TextIsNoFormat) {
  for (const char* body : {"{}", R"({"response_format":null})", R"({"response_format":{"type":"text"}})"}) {
    EXPECT_FALSE(Parse(body).value().has_value()) << body;
  }
}

TEST(ResponseFormatTest, TheValueKeepsItsKeysAndNumbers) {
  const ResponseFormat object = *Parse(R"({"response_format":{"type":"json_object"}})").value();
  EXPECT_EQ(object.text, R"({"type": "json_object"})");
  EXPECT_EQ(object.field, "response_format");
  EXPECT_EQ(object.schema.Find("type")->text, "object");
  for (const char* strict : {"true", "false", "null"}) {
    const std::string body = std::string(R"({"response_format":{"json_schema":{"strict":)") + strict +
                             R"(,"schema":{"minimum":1.0},"name":"n"},"type":"json_schema"}})";
    const ResponseFormat schema = *Parse(body).value();
    EXPECT_EQ(schema.text, std::string(R"({"json_schema": {"strict": )") + strict +
                               R"(, "schema": {"minimum": 1.0}, "name": "n"}, "type": "json_schema"})");
    EXPECT_EQ(schema.field, "response_format.json_schema.schema");
    EXPECT_EQ(schema.schema.Find("minimum")->text, "1.0");
  }
}

TEST(ResponseFormatTest, EachErrorNamesItsField) {
  EXPECT_EQ(Error(R"({"response_format":"json"})"), "response_format: must be an object, got a string");
  EXPECT_EQ(Error(R"({"response_format":{}})"), "response_format.type: is required");
  EXPECT_EQ(Error(R"({"response_format":{"type":"xml"}})"),
            "response_format.type: must be text, json_object or json_schema, got \"xml\"");
  EXPECT_EQ(Error(R"({"response_format":{"type":"json_schema"}})"), "response_format.json_schema: is required");
  EXPECT_EQ(Error(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})"),
            "response_format.json_schema.schema: is required");
  EXPECT_EQ(Error(R"({"response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}}})"),
            "response_format.json_schema.strict: must be a boolean, got an integer");
}

}  // namespace
}  // namespace tandem::router
