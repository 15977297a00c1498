// What the model is told of the form of its answer, and what is refused at which field.
#include "router/openai/response_format.h"

#include <string>
#include <vector>

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
  EXPECT_EQ(object.form.field, "response_format");
  EXPECT_EQ(object.form.schema.Find("type")->text, "object");
  for (const char* strict : {"true", "false", "null"}) {
    const std::string body = std::string(R"({"response_format":{"json_schema":{"strict":)") + strict +
                             R"(,"schema":{"minimum":1.0},"name":"n"},"type":"json_schema"}})";
    const ResponseFormat schema = *Parse(body).value();
    EXPECT_EQ(schema.text, std::string(R"({"json_schema": {"strict": )") + strict +
                               R"(, "schema": {"minimum": 1.0}, "name": "n"}, "type": "json_schema"})");
    EXPECT_EQ(schema.form.field, "response_format.json_schema.schema");
    EXPECT_EQ(schema.form.schema.Find("minimum")->text, "1.0");
  }
}

TEST(ResponseFormatTest, StructuresInFreeText) {
  const ResponseFormat format = *Parse(R"({"response_format":{"type":"structural_tag","triggers":["<f="],"structures":[
                {"begin":"<f=a>","schema":{"type":"integer"},"end":"</f>"},{"begin":"<f=b>","schema":true,"end":""}]}})")
                                     .value();
  EXPECT_EQ(format.text, "") << "no words for it are known";
  EXPECT_EQ(format.form.kind, AnswerForm::Kind::kStructuralTag);
  ASSERT_EQ(format.form.structures.size(), 2u);
  EXPECT_EQ(format.form.structures[0].begin, "<f=a>");
  EXPECT_EQ(format.form.structures[0].schema.Find("type")->text, "integer");
  EXPECT_EQ(format.form.structures[1].field, "response_format.structures[1].schema");
  const auto error = [](const std::string& members) {
    return Error(R"({"response_format":{"type":"structural_tag",)" + members + "}}");
  };
  const std::string structures = R"("structures":[{"begin":"<f>","schema":{},"end":"</f>"}])";
  EXPECT_EQ(error(structures), "response_format.triggers: must be an array with at least one element");
  EXPECT_EQ(error(R"("triggers":["<"])"), "response_format.structures: must be an array with at least one element");
  EXPECT_EQ(error(R"("triggers":[""],)" + structures), "response_format.triggers[0]: must not be empty");
  EXPECT_EQ(error(R"("triggers":["<g"],)" + structures),
            "response_format.structures[0].begin: must begin with one of the triggers");
  EXPECT_EQ(error(R"("format":{})"), "response_format.format: is not supported; structures and triggers are");
  for (const char* overlapping :
       {R"(["aba"])", R"(["<f","f>"])", R"(["<","<f"])", R"(["<f","<f"])", R"(["abcd","bc"])"}) {
    EXPECT_EQ(error(R"("triggers":)" + std::string(overlapping)).find("response_format.triggers: must not overlap"), 0u)
        << overlapping;
  }
}

TEST(ResponseFormatTest, FormsInWordsOfTheirOwn) {
  const auto parse = [](const char* object) { return ParseFormFields(boost::json::parse(object).get_object(), "p."); };
  EXPECT_FALSE(parse(R"({"regex":null,"x":1})").value().has_value());
  const AnswerForm regex = *parse(R"({"regex":"a\\d"})").value();
  EXPECT_EQ(regex.kind, AnswerForm::Kind::kRegex);
  EXPECT_EQ(regex.text, "a\\d");
  EXPECT_EQ(regex.field, "p.regex");
  EXPECT_EQ(parse(R"({"ebnf":"root ::= x"})").value()->kind, AnswerForm::Kind::kEbnf);
  const AnswerForm schema = *parse(R"({"json_schema":"{\"b\":1.0,\"a\":2}"})").value();
  EXPECT_EQ(schema.kind, AnswerForm::Kind::kSchema);
  EXPECT_EQ(schema.schema.keys, (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(schema.schema.Find("b")->text, "1.0");
  EXPECT_EQ(parse(R"({"regex":"a","json_schema":"{}"})").status().message(),
            "p.regex: is allowed only where p.json_schema is not sent");
  EXPECT_EQ(parse(R"({"regex":7})").status().message(), "p.regex: must be a string, got an integer");
  const std::string long_text = "{\"ebnf\":\"" + std::string(kFormTextBytesMax + 1, 'x') + "\"}";
  EXPECT_EQ(parse(long_text.c_str()).status().message(), "p.ebnf: must have at most 65536 bytes, got 65537");
}

TEST(ResponseFormatTest, EachErrorNamesItsField) {
  EXPECT_EQ(Error(R"({"response_format":"json"})"), "response_format: must be an object, got a string");
  EXPECT_EQ(Error(R"({"response_format":{}})"), "response_format.type: is required");
  EXPECT_EQ(Error(R"({"response_format":{"type":"xml"}})"),
            "response_format.type: must be text, json_object, json_schema or structural_tag, got \"xml\"");
  EXPECT_EQ(Error(R"({"response_format":{"type":"json_schema"}})"), "response_format.json_schema: is required");
  EXPECT_EQ(Error(R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})"),
            "response_format.json_schema.schema: is required");
  EXPECT_EQ(Error(R"({"response_format":{"type":"json_schema","json_schema":{"schema":{},"strict":1}}})"),
            "response_format.json_schema.strict: must be a boolean, got an integer");
}

}  // namespace
}  // namespace tandem::router
