#include "tools/bench_serving/answer_reader.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "boost/json/monotonic_resource.hpp"
#include "boost/json/parse.hpp"
#include "boost/json/serialize.hpp"

namespace tandem::bench_serving {
namespace {

namespace json = boost::json;

constexpr size_t kEventBytes = 4096;  // what an event's values take, as a rule; more comes from the heap

const json::value* Find(const json::object* object, const char* name) {
  return object == nullptr ? nullptr : object->if_contains(name);
}

const json::object* FindObject(const json::object* object, const char* name) {
  const json::value* const member = Find(object, name);
  return member == nullptr ? nullptr : member->if_object();
}

const json::array* FindArray(const json::object* object, const char* name) {
  const json::value* const member = Find(object, name);
  return member == nullptr ? nullptr : member->if_array();
}

// "" where there is none.
absl::string_view FindText(const json::object* object, const char* name) {
  const json::value* const member = Find(object, name);
  const json::string* const text = member == nullptr ? nullptr : member->if_string();
  return text == nullptr ? absl::string_view() : absl::string_view(text->data(), text->size());
}

void FindCount(const json::object* object, const char* name, std::optional<int>* count) {
  const json::value* const member = Find(object, name);
  if (member == nullptr) return;
  boost::system::error_code error;
  const int number = member->to_number<int>(error);
  if (!error) *count = number;
}

// A server's own words: {"message", "code" or "type"}, or whatever it says.
absl::Status ServerError(const json::value& error) {
  const json::object* const object = error.if_object();
  const json::value* code = Find(object, "code");
  if (code == nullptr || code->is_null()) code = Find(object, "type");
  const absl::string_view message = FindText(object, "message");
  const std::string kind = code == nullptr     ? ""
                           : code->if_string() ? absl::StrCat(" ", std::string(code->if_string()->c_str()))
                                               : absl::StrCat(" ", json::serialize(*code));
  return absl::InternalError(
      absl::StrCat("error event", kind, ": ", message.empty() ? json::serialize(error) : std::string(message)));
}

}  // namespace

absl::Status AnswerReader::Append(absl::string_view bytes, absl::Duration at) {
  if (!is_stream_) {
    body_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  absl::Status status;
  events_.Append(bytes, [&](absl::string_view event) {
    if (status.ok()) status = TakeEvent(event, at);
  });
  return status;
}

absl::Status AnswerReader::Finish(absl::Duration at) {
  if (!is_stream_) return TakeEvent(body_, at);
  if (!is_done_) return absl::DataLossError("stream ended without [DONE]: the server or the way to it failed");
  return absl::OkStatus();
}

absl::Status AnswerReader::TakeEvent(absl::string_view event, absl::Duration at) {
  end_ = at;
  if (event == "[DONE]") {
    is_done_ = true;
    return absl::OkStatus();
  }
  unsigned char buffer[kEventBytes];
  json::monotonic_resource memory(buffer);
  boost::system::error_code error;
  const json::value value = json::parse({event.data(), event.size()}, error, &memory);
  const json::object* const object = error ? nullptr : value.if_object();
  if (object == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unreadable event: \"", event.substr(0, 100), "\""));
  }
  const json::value* const failure = object->if_contains("error");
  if (failure != nullptr && !failure->is_null()) return ServerError(*failure);
  if (backend_ == Backend::kGenerate) {
    TakeGenerate(*object, at);
  } else {
    TakeOpenai(*object, at);
  }
  return absl::OkStatus();
}

void AnswerReader::AddText(absl::string_view text, absl::Duration at) {
  answer_.text.append(text.data(), text.size());
  answer_.chunks.push_back({.at = at, .text_end = answer_.text.size()});
}

void AnswerReader::TakeOpenai(const json::object& object, absl::Duration at) {
  if (const json::object* const usage = FindObject(&object, "usage")) {
    FindCount(usage, "prompt_tokens", &answer_.prompt_tokens);
    FindCount(usage, "completion_tokens", &answer_.completion_tokens);
    FindCount(FindObject(usage, "prompt_tokens_details"), "cached_tokens", &answer_.cached_tokens);
  }
  const json::array* const choices = FindArray(&object, "choices");
  if (choices == nullptr) return;
  for (const json::value& choice_value : *choices) {
    const json::object* const choice = choice_value.if_object();
    std::string text(FindText(choice, "text"));
    const json::object* const delta = FindObject(choice, is_stream_ ? "delta" : "message");
    absl::StrAppend(&text, FindText(delta, "reasoning_content"), FindText(delta, "content"));
    if (const json::array* const calls = FindArray(delta, "tool_calls")) {
      for (const json::value& call : *calls) {
        const json::object* const function = FindObject(call.if_object(), "function");
        absl::StrAppend(&text, FindText(function, "name"), FindText(function, "arguments"));
      }
    }
    if (!text.empty()) AddText(text, at);
  }
}

void AnswerReader::TakeGenerate(const json::object& object, absl::Duration at) {
  const json::object* const meta = FindObject(&object, "meta_info");
  FindCount(meta, "prompt_tokens", &answer_.prompt_tokens);
  FindCount(meta, "completion_tokens", &answer_.completion_tokens);
  FindCount(meta, "cached_tokens", &answer_.cached_tokens);
  const absl::string_view text = FindText(&object, "text");
  if (text.empty()) return;
  answer_.text.assign(text.data(), text.size());
  const int num_new = answer_.completion_tokens.value_or(num_tokens_ + 1) - num_tokens_;
  num_tokens_ += num_new;
  if (num_new <= 0 && !answer_.chunks.empty()) return;
  answer_.chunks.push_back({.at = at, .num_tokens = num_new, .text_end = text.size()});
}

}  // namespace tandem::bench_serving
