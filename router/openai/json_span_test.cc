// Spans in objects of every shape; the member is where an independent parser has it.
#include "router/openai/json_span.h"

#include <string>

#include "boost/json.hpp"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

std::string Span(absl::string_view object, absl::string_view key = "k") {
  return std::string(FindJsonSpan(object, key).value_or("(none)"));
}

TEST(JsonSpanTest, FindsTheTextAsItIsWritten) {
  EXPECT_EQ(Span(R"({"k":1.50})"), "1.50");
  EXPECT_EQ(Span(R"( { "a" : [1, {"k": 2}], "k" : {"b": [ 1.0 ]} , "c":3 } )"), R"({"b": [ 1.0 ]})");
  EXPECT_EQ(Span(R"({"k":"a\"}]\\","c":1})"), R"("a\"}]\\")");
  EXPECT_EQ(Span(R"({"k":null})"), "null");
  EXPECT_EQ(Span(R"({"k":[],"k":[1]})"), "[1]");
  EXPECT_EQ(Span(R"({"a":"k","b":{"k":1}})"), "(none)");
  EXPECT_EQ(Span("{}"), "(none)");
}

TEST(JsonSpanTest, EveryMemberOfAnObjectIsFound) {
  const std::string text =
      R"({"a":"x, \"y\": }","b":[[],{},"]",{"c":"}"}],"d":-1e-5,"e":true,"f":{"g":{"h":[null]}},"i":"\\","é":"ü"})";
  const boost::json::object object = boost::json::parse(text).get_object();
  for (const auto& [key, value] : object) {
    const absl::string_view span = FindJsonSpan(text, {key.data(), key.size()}).value_or("");
    EXPECT_EQ(boost::json::parse({span.data(), span.size()}), value) << key;
  }
}

// What is no JSON never gets here; a scan of it must end all the same.
TEST(JsonSpanTest, EndsOnAnyText) {
  const std::string text = R"({"a":[1,"\"{"],"k":{"b":"c"}})";
  for (size_t length = 0; length <= text.size(); ++length) FindJsonSpan(text.substr(0, length), "k");
}

}  // namespace
}  // namespace tandem::router
