#include "router/openapi_document.h"

#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "router/openai/generation_fields.h"
#include "router/openai/json_text.h"
#include "router/openai/response_format.h"

namespace tandem::router {
namespace {

// A member of an object: its name, and its schema as JSON text.
struct Field {
  std::string name;
  std::string schema;
};
using Fields = std::vector<Field>;

// ---- Schemas; all of request fields take null, which counts as absent ----

std::string Integer(absl::string_view limits) { return absl::StrCat(R"({"type":["integer","null"])", limits, "}"); }
std::string IntegerFrom(int64_t min) { return Integer(absl::StrCat(",\"minimum\":", min)); }
std::string IntegerBetween(int64_t min, int64_t max) {
  return Integer(absl::StrCat(",\"minimum\":", min, ",\"maximum\":", max));
}
std::string Number(absl::string_view limits) { return absl::StrCat(R"({"type":["number","null"],)", limits, "}"); }
std::string ArrayOf(absl::string_view items, absl::string_view limits = "") {
  return absl::StrCat(R"({"type":"array","items":)", items, limits, "}");
}
std::string AnyOf(std::initializer_list<std::string> schemas) {
  return absl::StrCat("{\"anyOf\":[", absl::StrJoin(schemas, ","), "]}");
}
std::string OneValue(absl::string_view value) { return absl::StrCat("{\"enum\":[", value, ",null]}"); }

constexpr char kBoolean[] = R"({"type":["boolean","null"]})";
constexpr char kText[] = R"({"type":"string"})";
constexpr char kNull[] = R"({"type":"null"})";
constexpr char kTokenId[] = R"({"type":"integer","minimum":0,"maximum":4294967295})";
constexpr char kNothing[] = R"({"type":"null"})";

std::string Id() { return absl::StrCat(R"({"type":"string","minLength":1,"maxLength":)", kIdBytesMax, "}"); }
std::string Ids() { return ArrayOf(kTokenId, ",\"minItems\":1"); }
std::string TextOrTexts() {
  return AnyOf({kText, ArrayOf(kText, absl::StrCat(",\"minItems\":1,\"maxItems\":", kChoicesMax))});
}
std::string IdsOrLists() {
  return AnyOf({Ids(), ArrayOf(Ids(), absl::StrCat(",\"minItems\":1,\"maxItems\":", kChoicesMax))});
}

std::string Object(const Fields& fields, absl::string_view required = "") {
  std::string out = R"({"type":"object","properties":{)";
  for (size_t i = 0; i < fields.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", JsonString(fields[i].name), ":", fields[i].schema);
  }
  absl::StrAppend(&out, "}", required.empty() ? "" : absl::StrCat(",\"required\":[", required, "]"), "}");
  return out;
}

void Add(Fields& fields, const Fields& more) { fields.insert(fields.end(), more.begin(), more.end()); }

// What an answer is held to, in words of its own.
std::string FormText(absl::string_view more = "") {
  return absl::StrCat(R"({"type":["string","null"],"minLength":1,"maxLength":)", kFormTextBytesMax, more, "}");
}

std::string ResponseFormatSchema() {
  const std::string plain = Object({{"type", R"({"enum":["text","json_object"]})"}}, "\"type\"");
  const std::string schema = Object({{"schema", R"({"type":"object"})"}, {"strict", kBoolean}}, "\"schema\"");
  const std::string by_schema =
      Object({{"type", R"({"const":"json_schema"})"}, {"json_schema", schema}}, R"("type","json_schema")");
  const std::string structure =
      Object({{"begin", kText}, {"schema", R"({"type":"object"})"}, {"end", kText}}, R"("begin","schema","end")");
  const std::string by_tags = Object({{"type", R"({"const":"structural_tag"})"},
                                      {"structures", ArrayOf(structure, ",\"minItems\":1")},
                                      {"triggers", ArrayOf(R"({"type":"string","minLength":1})", ",\"minItems\":1")}},
                                     R"("type","structures","triggers")");
  return AnyOf({plain, by_schema, by_tags, kNull});
}

// ---- Requests ----

Fields SamplingFields(const SamplingNames& names, const OpenApiLimits& limits) {
  const std::string stop_text = R"({"type":"string","minLength":1})";
  Fields fields = {
      {"temperature", Number(R"("minimum":0,"maximum":2)")},
      {"top_p", Number(R"("exclusiveMinimum":0,"maximum":1)")},
      {"top_k", IntegerBetween(-1, 2147483647)},
      {"min_p", Number(R"("minimum":0,"maximum":1)")},
      {"repetition_penalty", Number(R"("exclusiveMinimum":0,"maximum":2)")},
      {"frequency_penalty", Number(R"("minimum":-2,"maximum":2)")},
      {"presence_penalty", Number(R"("minimum":-2,"maximum":2)")},
      {"logit_bias",
       absl::StrCat(R"({"type":["object","null"],"propertyNames":{"pattern":"^(0|[1-9][0-9]{0,8})$"},)",
                    R"("additionalProperties":{"type":"number","minimum":-100,"maximum":100},"maxProperties":)",
                    kLogitBiasMax, "}")},
      {names.seed, IntegerBetween(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max())},
      {"n", IntegerBetween(1, limits.choices_max)},
      {names.max_tokens, IntegerFrom(names.max_tokens_min)},
      {names.min_tokens, IntegerFrom(0)},
      {"stop", AnyOf({stop_text, ArrayOf(stop_text, absl::StrCat(",\"maxItems\":", kStopStringsMax)), kNull})},
      {"stop_token_ids", AnyOf({ArrayOf(kTokenId, absl::StrCat(",\"maxItems\":", kStopTokenIdsMax)), kNull})},
      {"ignore_eos", kBoolean},
      {"regex", FormText()},
      {"ebnf", FormText()},
      {"json_schema", FormText(",\"contentMediaType\":\"application/json\"")},
      {"structural_tag", FormText(",\"contentMediaType\":\"application/json\"")},
      {"no_stop_trim", OneValue("false")},
      {"include_stop_str_in_output", OneValue("false")},
      {"skip_special_tokens", OneValue("true")},
  };
  if (names.max_tokens_too != nullptr) fields.push_back({names.max_tokens_too, IntegerFrom(names.max_tokens_min)});
  return fields;
}

Fields CommonFields() {
  return {{"rid", AnyOf({Id(), kNull})},
          {"cache_salt", AnyOf({Id(), kNull})},
          {"extra_key", AnyOf({Id(), kNull})},
          {"priority", IntegerBetween(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max())},
          {"stream", kBoolean},
          {"guided_json", kNothing},
          {"guided_regex", kNothing},
          {"guided_grammar", kNothing},
          {"guided_choice", kNothing},
          {"custom_logit_processor", kNothing},
          {"lora_path", kNothing},
          {"session_params", kNothing},
          {"return_token_ids", OneValue("false")},
          {"return_prompt_token_ids", OneValue("false")},
          {"return_hidden_states", OneValue("false")}};
}

Fields OpenAiFields(const SamplingNames& names, const OpenApiLimits& limits) {
  Fields fields = {
      {"model", absl::StrCat("{\"const\":", JsonString(limits.served_model_name), "}")},
      {"stream_options",
       AnyOf({Object({{"include_usage", kBoolean}, {"continuous_usage_stats", OneValue("false")}}), kNull})}};
  Add(fields, CommonFields());
  Add(fields, SamplingFields(names, limits));
  return fields;
}

std::string Messages() {
  const std::string part = Object({{"type", R"({"const":"text"})"}, {"text", kText}}, R"("type","text")");
  const std::string content = AnyOf({kText, ArrayOf(part), kNull});
  return ArrayOf(
      Object({{"role", R"({"enum":["system","developer","user","assistant","tool"]})"}, {"content", content}},
             R"("role")"),
      ",\"minItems\":1");
}

std::string ChatRequestSchema(const OpenApiLimits& limits) {
  Fields fields = OpenAiFields({}, limits);
  Add(fields,
      {{"messages", Messages()},
       {"logprobs", kBoolean},
       {"top_logprobs", IntegerBetween(0, kTopLogprobsMax)},
       {"parallel_tool_calls", kBoolean},
       {"response_format", ResponseFormatSchema()},
       {"continue_final_message", kBoolean},
       {"separate_reasoning", kBoolean},
       {"stream_reasoning", kBoolean},
       {"reasoning_effort", R"({"enum":["none","minimal","low","medium","high","xhigh","max",null]})"},
       {"thinking", AnyOf({Object({{"type", R"({"enum":["enabled","disabled"]})"}}, "\"type\""), kNull})},
       {"chat_template_kwargs", AnyOf({Object({{"thinking", kBoolean}, {"enable_thinking", kBoolean}}), kNull})},
       {"echo", OneValue("false")},
       {"audio", kNothing},
       {"prediction", kNothing},
       {"web_search_options", kNothing},
       {"input_ids", kNothing}});
  return Object(fields, R"("model","messages")");
}

std::string CompletionRequestSchema(const OpenApiLimits& limits) {
  Fields fields = OpenAiFields({.path = "", .max_tokens_min = 0}, limits);
  Add(fields, {{"prompt", AnyOf({TextOrTexts(), IdsOrLists()})},
               {"add_special_tokens", kBoolean},
               {"response_format", ResponseFormatSchema()},
               {"echo", kBoolean},
               {"logprobs", IntegerBetween(0, kTopLogprobsMax)},
               {"best_of", IntegerBetween(1, limits.choices_max)},
               {"suffix", OneValue("\"\"")},
               {"prompt_embeds", kNothing}});
  return Object(fields, R"("model","prompt")");
}

std::string GenerateRequestSchema(const OpenApiLimits& limits) {
  const SamplingNames names = SglangSamplingNames();
  Fields fields = CommonFields();
  fields[0].schema = AnyOf({Id(), ArrayOf(Id()), kNull});
  Add(fields, {{"text", AnyOf({TextOrTexts(), kNull})},
               {"input_ids", AnyOf({IdsOrLists(), kNull})},
               {"sampling_params", AnyOf({Object(SamplingFields(names, limits)), kNull})},
               {"return_logprob", kBoolean},
               {"top_logprobs_num", IntegerBetween(0, kTopLogprobsMax)},
               {"logprob_start_len", IntegerFrom(-1)},
               {"return_text_in_logprobs", kBoolean},
               {"input_embeds", kNothing},
               {"return_routed_experts", OneValue("false")}});
  return Object(fields);
}

std::string TokenizeRequestSchema() {
  return Object({{"prompt", AnyOf({TextOrTexts(), kNull})}, {"add_special_tokens", kBoolean}});
}

std::string DetokenizeRequestSchema() {
  return Object({{"tokens", IdsOrLists()}, {"skip_special_tokens", kBoolean}}, "\"tokens\"");
}

std::string AbortRequestSchema() {
  return Object({{"rid", AnyOf({R"({"type":"string"})", kNull})}, {"abort_all", kBoolean}});
}

// ---- Answers ----

constexpr char kCount[] = R"({"type":"integer","minimum":0})";

std::string UsageSchema() {
  return Object({{"prompt_tokens", kCount},
                 {"completion_tokens", kCount},
                 {"total_tokens", kCount},
                 {"reasoning_tokens", kCount},
                 {"prompt_tokens_details", Object({{"cached_tokens", kCount}}, "\"cached_tokens\"")},
                 {"completion_tokens_details", Object({{"reasoning_tokens", kCount}}, "\"reasoning_tokens\"")}},
                R"("prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details")");
}

std::string AnswerSchema(const char* object, const std::string& choice) {
  return Object({{"id", kText},
                 {"object", absl::StrCat("{\"const\":\"", object, "\"}")},
                 {"created", kCount},
                 {"model", kText},
                 {"choices", ArrayOf(choice)},
                 {"usage", UsageSchema()}},
                R"("id","object","created","model","choices","usage")");
}

constexpr char kFinishReason[] = R"({"enum":["stop","length","tool_calls","abort"]})";

std::string ChatAnswerSchema() {
  const std::string message = Object(
      {{"role", R"({"const":"assistant"})"}, {"content", R"({"type":["string","null"]})"}}, R"("role","content")");
  return AnswerSchema("chat.completion",
                      Object({{"index", kCount}, {"message", message}, {"finish_reason", kFinishReason}},
                             R"("index","message","finish_reason")"));
}

std::string CompletionAnswerSchema() {
  return AnswerSchema("text_completion", Object({{"index", kCount}, {"text", kText}, {"finish_reason", kFinishReason}},
                                                R"("index","text","finish_reason")"));
}

std::string GenerateAnswerSchema() {
  const std::string meta = Object({{"id", kText},
                                   {"finish_reason", R"({"type":["object","null"]})"},
                                   {"prompt_tokens", kCount},
                                   {"completion_tokens", kCount},
                                   {"cached_tokens", kCount}},
                                  R"("id","finish_reason","prompt_tokens","completion_tokens")");
  const std::string one = Object({{"text", kText}, {"output_ids", ArrayOf(kCount)}, {"meta_info", meta}},
                                 R"("text","output_ids","meta_info")");
  return AnyOf({one, ArrayOf(one)});
}

std::string ErrorSchema() {
  const std::string nullable_text = R"({"type":["string","null"]})";
  const std::string error =
      Object({{"message", kText}, {"type", kText}, {"param", nullable_text}, {"code", nullable_text}},
             R"("message","type","param","code")");
  return Object({{"error", error}}, "\"error\"");
}

// ---- Paths ----

std::string Json(absl::string_view schema) {
  return absl::StrCat(R"("content":{"application/json":{"schema":)", schema, "}}");
}

// As OpenAPI sees a stream: the schema of each event.
constexpr char kEventStream[] =
    R"(,"text/event-stream":{"schema":{"type":"object","required":["data"],"properties":{"data":{"type":"string"}}}})";

constexpr char kObject[] = R"({"type":"object"})";

// What a path answers where all is well: status, the schema of the body, and whether it may come as server-sent events
// instead.
struct Answer {
  std::string schema = kObject;
  bool streams = false;
  int status = 200;
};

std::string Responses(const Answer& answer) {
  std::string out = absl::StrCat("\"responses\":{\"", answer.status,
                                 R"(":{"description":"the answer","content":{"application/json":{"schema":)",
                                 answer.schema, "}", answer.streams ? kEventStream : "", "}}");
  for (const char* status : {"400", "401", "403", "404", "405", "408", "413", "429", "499", "500", "503", "504"}) {
    absl::StrAppend(&out, ",\"", status, R"(":{"description":"an error",)",
                    Json(R"({"$ref":"#/components/schemas/Error"})"), "}");
  }
  return out + "}";
}

std::string Send(const char* method, const char* summary, const std::string& body, const Answer& answer) {
  return absl::StrCat("\"", method, R"(":{"summary":")", summary, R"(","requestBody":{"required":true,)", Json(body),
                      "},", Responses(answer), "}");
}

std::string Post(const char* summary, const std::string& body, const Answer& answer) {
  return Send("post", summary, body, answer);
}

// Without a body.
std::string Ask(const char* method, const char* summary, const Answer& answer) {
  return absl::StrCat("\"", method, R"(":{"summary":")", summary, "\",", Responses(answer), "}");
}

std::string Get(const char* summary, const Answer& answer = {}) { return Ask("get", summary, answer); }

std::string Text(const char* method, const char* summary, const char* content_type = "text/plain") {
  const std::string plain = absl::StrCat(R"("content":{")", content_type, R"(":{"schema":{"type":"string"}}})");
  constexpr char kError[] = R"(":{"description":"an error",)";
  const std::string error = Json(R"({"$ref":"#/components/schemas/Error"})");
  return absl::StrCat("\"", method, R"(":{"summary":")", summary, R"(","responses":{"200":{"description":"text",)",
                      plain, R"(},"503":{"description":"not ready",)", plain, "},\"401", kError, error, "},\"405",
                      kError, error, "}}}");
}

// Of a path with {id} in it.
std::string WithId(const std::string& operations) {
  return absl::StrCat(
      R"("parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string","minLength":1}}],)",
      operations);
}

std::string WorkerSchema() {
  return Object({{"url", kText}, {"worker_type", R"({"enum":["prefill","decode"]})"}}, R"("url","worker_type")");
}

}  // namespace

std::string OpenApiDocument(const OpenApiLimits& limits) {
  const Answer tokenized = {Object(
      {{"tokens", R"({"type":"array"})"}, {"count", AnyOf({kCount, ArrayOf(kCount)})}, {"max_model_len", kCount}},
      R"("tokens","count","max_model_len")")};
  const Answer detokenized = {Object({{"text", AnyOf({kText, ArrayOf(kText)})}}, "\"text\"")};
  const Answer aborted = {Object({{"aborted", kCount}}, "\"aborted\"")};
  const Answer generated = {GenerateAnswerSchema(), /*streams=*/true};
  const Answer begun = {.status = 202};
  const std::string tokenize = Post("text to ids", TokenizeRequestSchema(), tokenized);
  const std::string detokenize = Post("ids to text", DetokenizeRequestSchema(), detokenized);
  const std::string generate = GenerateRequestSchema(limits);
  const std::string model_info = Get("the checkpoint");
  const std::string server_info = Get("router, workers, model");
  const std::vector<std::pair<const char*, std::string>> paths = {
      {"/v1/chat/completions",
       Post("answers a chat", ChatRequestSchema(limits), {ChatAnswerSchema(), /*streams=*/true})},
      {"/v1/completions",
       Post("goes on with a prompt", CompletionRequestSchema(limits), {CompletionAnswerSchema(), /*streams=*/true})},
      {"/generate", absl::StrCat(Post("SGLang's native API", generate, generated), ",",
                                 Send("put", "the same", generate, generated))},
      {"/tokenize", tokenize},
      {"/v1/tokenize", tokenize},
      {"/detokenize", detokenize},
      {"/v1/detokenize", detokenize},
      {"/abort_request", Post("ends answers by id", AbortRequestSchema(), aborted)},
      {"/flush_cache", absl::StrCat(Text("get", "workers forget their prefix caches"), ",",
                                    Text("post", "workers forget their prefix caches"))},
      {"/v1/models", Get("the served model")},
      {"/v1/models/{id}", WithId(Get("the served model, by its name"))},
      {"/model_info", model_info},
      {"/get_model_info", model_info},
      {"/server_info", server_info},
      {"/get_server_info", server_info},
      {"/v1/loads", Get("load of every worker")},
      {"/workers", absl::StrCat(Get("every worker"), ",", Post("adds a worker", WorkerSchema(), begun))},
      {"/workers/{id}",
       WithId(absl::StrCat(Get("one worker"), ",", Ask("delete", "takes off a worker that was added", begun)))},
      {"/workers/{id}/drain", WithId(Ask("post", "gives a worker nothing new", begun))},
      {"/health_generate", Get("one token through prefill and decode")},
      {"/health", Text("get", "the process lives")},
      {"/readyz", Text("get", "requests can be served")},
      {"/metrics", Text("get", "Prometheus")},
      {"/statusz", Text("get", "what runs, as tables")},
      {"/dashboard", Text("get", "a page of the router's state, and a chat box", "text/html")},
      {"/debug/state", Get("the state that the page shows")},
      {"/debug/route", Post("the pair that a request would get now, and why",
                            AnyOf({ChatRequestSchema(limits), CompletionRequestSchema(limits)}), {})},
      {"/debug/requests", Get("requests that run, ended last, or waited longest")},
      {"/debug/requests/{id}", WithId(Get("what happened to one request, and when"))},
      {"/openapi.json", Get("this document")},
  };
  std::string out =
      R"({"openapi":"3.1.0","info":{"title":"Tandem","version":"1","description":"docs/api.md says what the fields mean"},)"
      R"("components":{"securitySchemes":{"key":{"type":"http","scheme":"bearer"}},"schemas":{"Error":)";
  absl::StrAppend(&out, ErrorSchema(), "}},\"security\":[{},{\"key\":[]}],\"paths\":{");
  for (size_t i = 0; i < paths.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", JsonString(paths[i].first), ":{", paths[i].second, "}");
  }
  return out + "}}";
}

}  // namespace tandem::router
