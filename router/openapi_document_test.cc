// What the document says of a request's fields is what the parsers do: every field of every body is put to its parser
// with null, the least and greatest values it allows, one beyond each, and values of other types.
#include "router/openapi_document.h"

#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/abort_request.h"
#include "router/openai/api_error.h"
#include "router/openai/chat_request.h"
#include "router/openai/completion_request.h"
#include "router/openai/generate_request.h"
#include "router/openai/tokenize_request.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

json::value Document() { return json::parse(OpenApiDocument({.served_model_name = "m", .choices_max = kChoicesMax})); }

const json::object& BodySchema(const json::value& document, const std::string& path) {
  return document.at("paths")
      .at(path)
      .at("post")
      .at("requestBody")
      .at("content")
      .at("application/json")
      .at("schema")
      .as_object();
}

// How a body is parsed, the least body that is taken, and where its tested object stands.
struct Endpoint {
  std::string path;
  std::string body;
  std::string inside;  // a member whose own members are tested; "" = the body's
  std::function<absl::Status(const std::string&)> parse;
};

std::vector<Endpoint> Endpoints() {
  const auto chat = [](const std::string& body) { return ParseChatRequest(body).status(); };
  const auto completion = [](const std::string& body) { return ParseCompletionRequest(body).status(); };
  const auto generate = [](const std::string& body) { return ParseGenerateRequest(body).status(); };
  return {
      {"/v1/chat/completions", R"({"model":"m","messages":[{"role":"user","content":"hi"}]})", "", chat},
      {"/v1/completions", R"({"model":"m","prompt":"hi"})", "", completion},
      {"/generate", R"({"text":"hi"})", "", generate},
      {"/generate", R"({"text":"hi","sampling_params":{}})", "sampling_params", generate},
      {"/tokenize", R"({"prompt":"hi"})", "", [](const std::string& b) { return ParseTokenizeRequest(b).status(); }},
      {"/detokenize", R"({"tokens":[1]})", "", [](const std::string& b) { return ParseDetokenizeRequest(b).status(); }},
      {"/abort_request", R"({"rid":"x"})", "", [](const std::string& b) { return ParseAbortRequest(b).status(); }}};
}

bool Matches(const json::value& value, const json::value& schema);

bool IsOfType(const json::value& value, absl::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "integer") return value.is_int64() || value.is_uint64();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  return type == "object" && value.is_object();
}

// As much of JSON Schema as the document uses for plain values.
bool Matches(const json::value& value, const json::value& schema_value) {
  const json::object& schema = schema_value.as_object();
  const auto number = [&](const char* name, double otherwise) {
    const json::value* found = schema.if_contains(name);
    return found == nullptr ? otherwise : found->to_number<double>();
  };
  if (const json::value* any = schema.if_contains("anyOf")) {
    for (const json::value& one : any->as_array()) {
      if (Matches(value, one)) return true;
    }
    return false;
  }
  if (const json::value* values = schema.if_contains("enum")) {
    for (const json::value& one : values->as_array()) {
      if (one == value) return true;
    }
    return false;
  }
  if (const json::value* one = schema.if_contains("const")) return *one == value;
  if (const json::value* types = schema.if_contains("type")) {
    bool is_of_one = false;
    if (types->is_string()) {
      is_of_one = IsOfType(value, std::string(types->as_string()));
    } else {
      for (const json::value& type : types->as_array()) is_of_one |= IsOfType(value, std::string(type.as_string()));
    }
    if (!is_of_one) return false;
  }
  if (value.is_number()) {
    const double x = value.to_number<double>();
    return x >= number("minimum", -1e300) && x <= number("maximum", 1e300) && x > number("exclusiveMinimum", -1e300);
  }
  if (value.is_string()) {
    const auto size = static_cast<double>(value.as_string().size());
    return size >= number("minLength", 0) && size <= number("maxLength", 1e9);
  }
  if (value.is_array()) {
    const auto size = static_cast<double>(value.as_array().size());
    if (size < number("minItems", 0) || size > number("maxItems", 1e9)) return false;
    for (const json::value& item : value.as_array()) {
      if (schema.contains("items") && !Matches(item, schema.at("items"))) return false;
    }
  }
  return true;
}

// Values of every kind, and those at the schema's own limits.
std::vector<json::value> Probes(const json::value& schema) {
  const json::value plain = json::parse(
      R"([null,true,false,0,1,-1,0.5,2.5,"","x","none",[],{},[1],["x"],[[1]],[-1],[""],["x",1],[[]],1e300])");
  std::vector<json::value> probes(plain.as_array().begin(), plain.as_array().end());
  probes.emplace_back(std::string(300, 'x'));
  const std::function<void(const json::value&)> add = [&](const json::value& part) {
    if (!part.is_object()) return;
    for (const char* name : {"minimum", "maximum", "exclusiveMinimum"}) {
      const json::value* limit = part.as_object().if_contains(name);
      if (limit == nullptr) continue;
      probes.push_back(*limit);
      constexpr int64_t kFar = int64_t{1} << 40;
      if (limit->is_int64() && limit->get_int64() > -kFar && limit->get_int64() < kFar) {
        probes.emplace_back(limit->get_int64() - 1);
        probes.emplace_back(limit->get_int64() + 1);
      }
    }
    for (const char* name : {"maxItems"}) {
      const json::value* limit = part.as_object().if_contains(name);
      if (limit == nullptr) continue;
      const auto size = static_cast<size_t>(limit->as_int64());
      const json::value item =
          part.at("items").as_object().if_contains("type") != nullptr && part.at("items").at("type") == "string"
              ? json::value("x")
              : json::value(1);
      probes.emplace_back(json::array(size, item));
      probes.emplace_back(json::array(size + 1, item));
    }
    if (const json::value* values = part.as_object().if_contains("enum")) {
      for (const json::value& value : values->as_array()) probes.push_back(value);
    }
    if (const json::value* any = part.as_object().if_contains("anyOf")) {
      for (const json::value& one : any->as_array()) add(one);
    }
  };
  add(schema);
  return probes;
}

// Fields whose values are bound to others' by rules that a schema of one field cannot say; their own tests have them.
const std::set<std::string>& BoundToOthers() {
  static const auto* const fields = new std::set<std::string>{"model",
                                                              "messages",
                                                              "prompt",
                                                              "text",
                                                              "input_ids",
                                                              "tokens",
                                                              "rid",
                                                              "stream_options",
                                                              "top_logprobs",
                                                              "top_logprobs_num",
                                                              "min_tokens",
                                                              "min_new_tokens",
                                                              "best_of",
                                                              "continue_final_message",
                                                              "logit_bias",
                                                              "json_schema",
                                                              "structural_tag",
                                                              "response_format",
                                                              "thinking",
                                                              "chat_template_kwargs",
                                                              "sampling_params",
                                                              "abort_all"};
  return *fields;
}

TEST(OpenApiDocumentTest, EveryFieldIsTakenOrRefusedAsTheDocumentSays) {
  const json::value document = Document();
  int num_taken = 0, num_refused = 0;
  for (const Endpoint& endpoint : Endpoints()) {
    const json::object* schema = &BodySchema(document, endpoint.path);
    if (!endpoint.inside.empty()) {
      schema = &schema->at("properties").at(endpoint.inside).at("anyOf").at(0).as_object();
    }
    ASSERT_TRUE(endpoint.parse(endpoint.body).ok()) << endpoint.body;
    for (const auto& property : schema->at("properties").as_object()) {
      const std::string name(property.key());
      if (BoundToOthers().contains(name)) continue;
      for (const json::value& probe : Probes(property.value())) {
        json::value body = json::parse(endpoint.body);
        json::object& object =
            endpoint.inside.empty() ? body.as_object() : body.as_object().at(endpoint.inside).as_object();
        object[name] = probe;
        const absl::Status status = endpoint.parse(json::serialize(body));
        const bool is_said = Matches(probe, property.value());
        EXPECT_EQ(status.ok(), is_said) << endpoint.path << " " << name << " = " << json::serialize(probe).substr(0, 80)
                                        << ": " << status;
        ++(status.ok() ? num_taken : num_refused);
        if (status.ok()) continue;
        const json::value param = json::parse(ErrorBody(status)).at("error").at("param");
        const std::string path = absl::StrCat(endpoint.inside, endpoint.inside.empty() ? "" : ".", name);
        ASSERT_TRUE(param.is_string()) << status;
        EXPECT_EQ(std::string(param.as_string()).substr(0, path.size()), path) << status;
      }
    }
  }
  EXPECT_GT(num_taken, 400);
  EXPECT_GT(num_refused, 1000);
}

// docs/api.md's paths. That each of them is there, and takes these methods, is endpoints_integration_test.cc's matter.
TEST(OpenApiDocumentTest, HasEveryPathAndEverySpellingOfIt) {
  const json::object paths = Document().at("paths").as_object();
  for (const char* path : {"/v1/chat/completions",
                           "/v1/completions",
                           "/generate",
                           "/v1/models",
                           "/v1/models/{id}",
                           "/tokenize",
                           "/v1/tokenize",
                           "/detokenize",
                           "/v1/detokenize",
                           "/model_info",
                           "/get_model_info",
                           "/server_info",
                           "/get_server_info",
                           "/v1/loads",
                           "/flush_cache",
                           "/abort_request",
                           "/health_generate",
                           "/dashboard",
                           "/debug/state",
                           "/debug/route",
                           "/workers",
                           "/workers/{id}",
                           "/workers/{id}/drain",
                           "/openapi.json",
                           "/health",
                           "/readyz",
                           "/metrics",
                           "/statusz",
                           "/debug/requests",
                           "/debug/requests/{id}"}) {
    EXPECT_TRUE(paths.contains(path)) << path;
  }
  EXPECT_EQ(paths.size(), 30u);
}

TEST(OpenApiDocumentTest, HasEveryPathWithItsErrors) {
  const json::value document = Document();
  EXPECT_EQ(document.at("openapi").as_string(), "3.1.0");
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/generate", "/tokenize", "/detokenize"}) {
    const json::value& post = document.at("paths").at(path).at("post");
    EXPECT_EQ(post.at("responses").at("400").at("content").at("application/json").at("schema").at("$ref").as_string(),
              "#/components/schemas/Error");
  }
  EXPECT_TRUE(document.at("paths").as_object().contains("/health_generate"));
}

}  // namespace
}  // namespace tandem::router
