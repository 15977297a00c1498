// How one kind of answer is written down: as the events of a stream, or as one whole body.
//
// An AnswerFormat belongs to one request. index: of a choice among all choices of the answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// The events that are the same in every stream.
void AppendErrorEvent(std::string& out, absl::string_view error_body);
void AppendDoneEvent(std::string& out);
// A comment that clients skip and proxies see: keeps an idle connection alive.
void AppendKeepaliveEvent(std::string& out);

// Members of a JSON object that both formats share.
// {"id":...,"object":...,"created":...,"model":... without an end.
void AppendIdentity(std::string& out, const AnswerIdentity& identity, absl::string_view object);
void AppendUsageObject(std::string& out, const Usage& usage);
// "finish_reason":...,"matched_stop":...
void AppendEndMembers(std::string& out, const ChoiceEnd& end);

}  // namespace tandem::router
