// What schemas allow and refuse, text by text. Random schemas are tests/constraints' matter.
#include "router/constraints/json_schema.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/constraints/constraint_probe.h"

namespace tandem::router {
namespace {

using ::tandem::testing::CompileSchema;
using ::tandem::testing::ConstraintProbe;

void Check(const char* schema, const std::vector<const char*>& accepted, const std::vector<const char*>& refused) {
  const auto constraint = CompileSchema(schema);
  ASSERT_TRUE(constraint.ok()) << schema << ": " << constraint.status();
  ConstraintProbe probe(**constraint);
  for (const char* text : accepted) EXPECT_TRUE(probe.Accepts(text)) << schema << " on " << text;
  for (const char* text : refused) EXPECT_FALSE(probe.Accepts(text)) << schema << " on " << text;
}

std::string Error(const char* schema) {
  const auto constraint = CompileSchema(schema);
  return constraint.ok() ? "" : std::string(constraint.status().message());
}

TEST(JsonSchemaTest, Types) {
  Check(R"({"type":"null"})", {"null"}, {"", "nul", "true", "null "});
  Check(R"({"type":"boolean"})", {"true", "false"}, {"null", "True"});
  Check(R"({"type":"integer"})", {"0", "-1", "120", "999999999999999999"}, {"01", "-0", "1.0", "1e3", "+1", "-"});
  Check(R"({"type":"number"})", {"0", "-0", "-0.5", "1.25", "1e5", "2E-07", "-1.5e+10"}, {".5", "1.", "1e", "1e100"});
  Check(R"({"type":["string","null"]})", {"null", "\"x\""}, {"1"});
  Check("true", {"null", "[]", "{}", "\"\"", "1", "[1, {\"a\": [null]}]"}, {"", "nil"});
  Check("{}", {"null", "[]", "{\"a\":1}", "-3.5"}, {"undefined"});
}

TEST(JsonSchemaTest, Strings) {
  Check(R"({"type":"string"})",
        {R"("")", R"("héllo 世界 🙂")", R"("a\"b\\c\/\n\u00e9\uD83D\ude00")", "\"<｜x｜>\""},
        {"\"\n\"", "\"a", R"("\x")", R"("\ud83d")", R"("\ud83dx")", R"("\ude00")", "\"\xff\"", "\"\xed\xa0\x80\""});
  Check(R"({"type":"string","minLength":2,"maxLength":3})", {R"("ab")", R"("世界🙂")", R"("a\n\ud83d\ude00")"},
        {R"("a")", R"("abcd")", R"("")"});
  Check(R"({"type":"string","minLength":1})", {R"("a")", R"("abc")"}, {R"("")"});
  Check(R"({"type":"string","pattern":"^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")", R"("\u0061")"});
  Check(R"({"pattern":"b"})", {R"("b")", R"("abc")"}, {R"("a")"});
  Check(R"({"pattern":"^\"\\\\$"})", {R"("\"\\")"}, {R"("""")"});
  Check(R"({"pattern":"^a|c$","maxLength":2})", {R"("a")", R"("ax")", R"("xc")"}, {R"("xa")", R"("axx")"});
  Check(R"({"type":"string","format":"date"})", {R"("2024-02-28")", R"("1999-12-31")"},
        {R"("2024-02-30")", R"("2024-13-01")", R"("2024-1-1")"});
  Check(R"({"type":"string","format":"uuid"})", {R"("01234567-89ab-cdef-0123-456789abcdef")"}, {R"("x")"});
  Check(R"({"type":"string","format":"ipv4"})", {R"("0.0.0.0")", R"("255.10.99.1")"}, {R"("256.0.0.1")", R"("1.2.3")"});
  Check(R"({"type":"string","format":"something-else"})", {R"("x")"}, {});
}

TEST(JsonSchemaTest, NumbersBetweenBounds) {
  Check(R"({"type":"integer","minimum":-12,"maximum":105})", {"-12", "-1", "0", "9", "10", "99", "100", "105"},
        {"-13", "-20", "106", "110", "200", "1000", "-0"});
  Check(R"({"type":"integer","exclusiveMinimum":0,"exclusiveMaximum":3})", {"1", "2"}, {"0", "3", "-1"});
  Check(R"({"type":"integer","minimum":1.5})", {"2", "999999999999999999"}, {"1", "-2"});
  Check(R"({"type":"integer","maximum":-5})", {"-5", "-999999999999999999"}, {"-4", "0"});
  Check(R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "0.5", "0.999"}, {"1.5", "-0.5", "2", "1e0"});
  Check(R"({"type":"number","minimum":-2,"maximum":-1})", {"-2", "-1", "-1.5", "-1.999"}, {"-0.5", "-2.5", "1"});
}

TEST(JsonSchemaTest, ConstantsAreThePrintedValues) {
  Check(R"({"enum":["a","b\n",1,null,{"k":[1,true]}]})", {R"("a")", R"("b\n")", "1", "null", R"({"k": [1, true]})"},
        {R"("c")", "2", R"({"k":[1,true]})"});
  Check(R"({"const":"x"})", {R"("x")"}, {R"("y")"});
  Check(R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"});
}

TEST(JsonSchemaTest, ObjectsHaveTheirMembersInOrder) {
  const char* schema = R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"},
                          "c":{"type":"null"}},"required":["b"]})";
  Check(schema, {R"({"b":true})", R"({"a": 1, "b": false})", R"({"a":1,"b":true,"c":null})", "{\n  \"b\": true\n}"},
        {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":1})", R"({"b":true,"d":1})", R"({"b":true,"b":true})",
         R"({"b":true,})"});
  Check(R"({"type":"object","properties":{"a":{}},"additionalProperties":{"type":"integer"}})",
        {"{}", R"({"a":"x"})", R"({"a":[],"z":1,"aa":2})", R"({"z":1})"},
        {R"({"":1})", R"({"z":"x"})", R"({"z":1,"a":1})", R"({"\u0061":1})"});
  Check(R"({"type":"object"})", {"{}", R"({"x":{"y":[]}})"}, {"[]"});
  Check(R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {R"({"x":1})"});
  Check(R"({"required":["x"]})", {R"({"x":1})", R"({"x":null,"y":1})"}, {"{}", R"({"y":1})"});
  Check(R"({"properties":{"a":false,"b":true}})", {"{}", R"({"b":1})"}, {R"({"a":1})"});
}

TEST(JsonSchemaTest, Arrays) {
  Check(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]", "[ 1 ]"}, {"[a]", "[1,]", "[,1]"});
  Check(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})", {"[1]", "[1,2,3]"},
        {"[]", "[1,2,3,4]"});
  Check(R"({"prefixItems":[{"type":"string"},{"type":"integer"}],"items":false,"minItems":2})", {R"(["a",1])"},
        {R"(["a"])", R"(["a",1,2])", R"([1,"a"])"});
  Check(R"({"prefixItems":[{"type":"string"}]})", {"[]", R"(["a"])", R"(["a",1,null])"}, {"[1]"});
  Check(R"({"type":"array","minItems":2})", {"[1,2]", "[1,2,3]"}, {"[]", "[1]"});
  Check(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(JsonSchemaTest, Alternatives) {
  Check(R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"string"}}]})", {"1", R"(["a"])"}, {R"("a")"});
  Check(R"({"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
        {R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"}, {"{}"});
  Check(R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", R"("a")"}, {"null"});
  Check(R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},
                     {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]})",
        {R"({"k":"a","x":1})", R"({"k":"b"})"}, {R"({"k":"b","x":1})", R"({"k":"a"})"});
  Check(R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]},
                     {"properties":{"a":{"type":["integer","string"]},"b":{"type":"null"}}}]})",
        {R"({"a":1})", R"({"a":1,"b":null})"}, {R"({"a":1.5})", R"({"a":"x"})", "{}"});
  Check(R"({"type":"string","nullable":true})", {"null", R"("x")"}, {"1"});
  Check(R"({"allOf":[{"minLength":1},{"type":"string","maxLength":2},{"minLength":2}]})", {R"("ab")"}, {R"("a")"});
}

TEST(JsonSchemaTest, References) {
  Check(
      R"({"$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},
            {"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/node"})",
      {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
      {R"({"v":1})", R"({"v":1,"next":{"v":2}})"});
  Check(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
  Check(R"({"definitions":{"a/b~c":{"type":"null"}},"$ref":"#/definitions/a~1b~0c","title":"t"})", {"null"}, {"1"});
}

TEST(JsonSchemaTest, ErrorsSayWhichKeywordWhere) {
  EXPECT_EQ(Error(R"({"type":"object","properties":{"a":{"items":{"not":{}}}}})"),
            "schema: not is not supported (at /properties/a/items/not)");
  EXPECT_EQ(Error(R"({"type":"array","uniqueItems":true})"), "schema: uniqueItems is not supported (at /uniqueItems)");
  EXPECT_EQ(Error(R"({"type":"array","uniqueItems":false})"), "");
  EXPECT_EQ(
      Error(R"({"type":"strin"})"),
      "schema: type must be one of null, boolean, integer, number, string, array, object, got \"strin\" (at /type)");
  EXPECT_EQ(Error(R"({"properties":{"x/y":{"$ref":"#/$defs/z"}}})"),
            "schema: $ref leads nowhere: \"#/$defs/z\" (at /properties/x~1y/$ref)");
  EXPECT_EQ(Error(R"({"$ref":"http://x/y"})"),
            "schema: $ref is supported within the schema alone, as \"#\" or \"#/...\" (at /$ref)");
  EXPECT_EQ(Error(R"x({"pattern":"(?=a)"})x"),
            "schema: pattern: look-ahead is not supported at character 0 (at /pattern)");
  EXPECT_EQ(Error(R"({"type":"string","enum":["a"],"minLength":1})"),
            "schema: enum and const are not supported beside keywords that restrict them");
  EXPECT_EQ(Error(R"({"anyOf":[]})"), "schema: anyOf must be a list of at least one schema (at /anyOf)");
  EXPECT_EQ(Error(R"({"type":"object","required":["a"],"additionalProperties":false})"),
            "schema: \"a\" is required, and additionalProperties is false (at /required)");
  EXPECT_EQ(Error("1"), "schema: a schema must be an object or a boolean");
  EXPECT_EQ(Error(R"({"minItems":-1})"), "schema: minItems must be a count (at /minItems)");
  EXPECT_EQ(
      Error(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"),
      "schema: oneOf is supported where no value can fit two of its schemas; 0 and 1 may overlap; anyOf says what "
      "is generated (at /oneOf)");
}

TEST(JsonSchemaTest, ASchemaThatNothingSatisfiesIsRefused) {
  EXPECT_EQ(Error("false"), "schema: no answer satisfies it");
  EXPECT_EQ(Error(R"({"$ref":"#"})"), "schema: no answer satisfies it");
  EXPECT_EQ(Error(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
            "schema: no answer satisfies it");
  EXPECT_EQ(Error(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), "schema: refers to itself with nothing in between");
  EXPECT_EQ(Error(R"({"allOf":[{"$ref":"#"}]})"),
            "schema: refers to itself with nothing in between, or to others more than 32 deep (at /allOf/0)");
  EXPECT_EQ(Error(R"({"allOf":[{"type":"string"},{"type":"null"}]})"), "schema: no answer satisfies it");
  EXPECT_EQ(Error(R"({"minLength":3,"maxLength":2,"type":"string"})"), "schema: no answer satisfies it");
}

TEST(JsonSchemaTest, WorkIsBounded) {
  EXPECT_EQ(Error(R"({"type":"string","maxLength":9000})"),
            "schema: maxLength is supported up to 8192 (at /maxLength)");
  EXPECT_EQ(Error(R"({"pattern":"^(a|b)*a(a|b){200}$"})").find("schema: pattern: takes more"), 0u);
  EXPECT_EQ(Error(R"x({"pattern":"((((a{99}){99}){99}){99})"})x"),
            "schema: pattern: takes more than 8192 states (at /pattern)");
  EXPECT_EQ(Error(R"({"type":"array","items":{"type":"string","maxLength":5000},"minItems":2,"maxItems":20000})"),
            "schema: maxItems is supported up to 16384 (at /maxItems)");
}

}  // namespace
}  // namespace tandem::router
