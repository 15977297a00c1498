// How one kind of answer is written down: as the events of a stream, or as one whole body.
//
// An AnswerFormat belongs to one request. index: of a choice among all choices of the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/openai/answer.h"

namespace tandem::router {

// What every body of one request says about it.
struct AnswerIdentity {
  std::string id;       // "chatcmpl-...", "cmpl-...", or what the client chose
  int64_t created = 0;  // Unix seconds
  std::string model;
  std::vector<std::string> prompt_ids = {};  // of each prompt
};

// A choice that has ended.
struct WholeChoice {
  AnswerDelta text;  // every call once, with all its arguments
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenId> tokens;
  std::shared_ptr<const PromptLogprobs> prompt_logprobs;  // nullptr where not asked for
  int64_t num_cached_tokens = 0;                          // of its prompt
  ChoiceEnd end;
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // Server-sent events, appended to out. Of each choice: the opening once, then deltas, the last with its end.
  virtual void AppendOpening(std::string& out, int index) const = 0;
  virtual void AppendDelta(std::string& out, int index, const ChoiceDelta& delta) = 0;
  // Once, after the last choice has ended.
  virtual void AppendUsage(std::string& out, const Usage& usage) const = 0;

  virtual std::string WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const = 0;
};

// What stands around the choices in every event and body of one answer: escaped once per request, so that a token costs
// a few appends.
class AnswerFrame final {
 public:
  // event_object, body_object: what "object" says in an event and in a whole body. has_usage_field: the stream ends
  // with usage, so every other event says "usage":null.
  AnswerFrame(const AnswerIdentity& identity, absl::string_view event_object, absl::string_view body_object,
              bool has_usage_field);

  // An event's text before and after its choices.
  const std::string& event_head() const { return event_head_; }
  absl::string_view event_end() const { return event_end_; }
  // The event without choices that tells usage.
  void AppendUsageEvent(std::string& out, const Usage& usage) const;
  // append_choice(out, index) writes one choice, with its braces.
  std::string WholeBody(size_t num_choices, const Usage& usage,
                        absl::FunctionRef<void(std::string&, int)> append_choice) const;

 private:
  std::string event_head_;
  absl::string_view event_end_;
  std::string body_head_;
};

// The events that are the same in every stream.
void AppendErrorEvent(std::string& out, absl::string_view error_body);
void AppendDoneEvent(std::string& out);
// A comment that clients skip and proxies see: keeps an idle connection alive.
void AppendKeepaliveEvent(std::string& out);

// "finish_reason":...,"matched_stop":...
void AppendEndMembers(std::string& out, const ChoiceEnd& end);

}  // namespace tandem::router
