#include "tools/bench_serving/request_body.h"

#include "base/check.h"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"

namespace tandem::bench_serving {
namespace {

namespace json = boost::json;

// Of text that was parsed once already.
json::value Parsed(absl::string_view text) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  TANDEM_CHECK(!error, "flags and files are parsed before requests are made of them");
  return value;
}

json::string Text(absl::string_view text) { return json::string(text.data(), text.size()); }

json::array Ids(const BenchRequest& request) { return json::array(request.ids.begin(), request.ids.end()); }

json::object GenerateBody(const Flags& flags, const BenchRequest& request) {
  json::object sampling{{"temperature", flags.temperature},
                        {"max_new_tokens", request.output_len},
                        {"ignore_eos", !flags.disable_ignore_eos}};
  if (flags.top_p != 1) sampling["top_p"] = flags.top_p;
  json::object body;
  if (request.ids.empty()) {
    body["text"] = Text(request.text);
  } else {
    body["input_ids"] = Ids(request);
  }
  body["sampling_params"] = std::move(sampling);
  body["return_logprob"] = flags.return_logprob;
  return body;
}

json::object OpenaiBody(const Flags& flags, absl::string_view model, const BenchRequest& request) {
  json::object body;
  body["model"] = Text(model);
  if (flags.backend == Backend::kCompletions) {
    body["prompt"] = request.ids.empty() ? json::value(Text(request.text)) : json::value(Ids(request));
    body["max_tokens"] = request.output_len;
  } else {
    body["messages"] = request.messages.empty()
                           ? json::value(json::array{json::object{{"role", "user"}, {"content", Text(request.text)}}})
                           : Parsed(request.messages);
    body["max_completion_tokens"] = request.output_len;
  }
  body["temperature"] = flags.temperature;
  if (flags.top_p != 1) body["top_p"] = flags.top_p;
  body["ignore_eos"] = !flags.disable_ignore_eos;
  if (!flags.disable_stream) body["stream_options"] = json::object{{"include_usage", true}};
  return body;
}

}  // namespace

const char* BackendPath(Backend backend) {
  switch (backend) {
    case Backend::kGenerate:
      return "/generate";
    case Backend::kCompletions:
      return "/v1/completions";
    case Backend::kChat:
      break;
  }
  return "/v1/chat/completions";
}

std::string RequestBody(const Flags& flags, absl::string_view model, const BenchRequest& request) {
  json::object body =
      flags.backend == Backend::kGenerate ? GenerateBody(flags, request) : OpenaiBody(flags, model, request);
  body["stream"] = !flags.disable_stream;
  const json::value extra = Parsed(flags.extra_request_body);
  for (const auto& [name, value] : extra.as_object()) body[name] = value;
  return json::serialize(body);
}

}  // namespace tandem::bench_serving
