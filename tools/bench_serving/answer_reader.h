// Makes an answer of a response's body: events of one of three APIs, or one JSON object.
//
// chat and completions: a chunk for each event with text (content or reasoning_content, or text), counts from `usage`.
// generate: `text` is cumulative, so is meta_info.completion_tokens; an event with more text but no new token adds
// none. Tool calls are text too: their names and arguments are chunks. Tested by answer_reader_test.cc.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/bench_serving/answer.h"
#include "tools/bench_serving/event_stream.h"
#include "tools/bench_serving/flags.h"

namespace boost::json {
class object;
}

namespace tandem::bench_serving {

class AnswerReader final {
 public:
  AnswerReader(Backend backend, bool is_stream) : backend_(backend), is_stream_(is_stream) {}

  // Bytes of the body in order, with the time at which they were read. Not OK at the first event that is no answer:
  // INVALID_ARGUMENT where it cannot be read, INTERNAL where it is the server's error. As everywhere in this folder,
  // the message says the kind of failure before its first ": ", and then the particulars.
  absl::Status Append(absl::string_view bytes, absl::Duration at);
  // The body is whole. DATA_LOSS where a stream has not said [DONE].
  absl::Status Finish(absl::Duration at);

  const Answer& answer() const { return answer_; }
  Answer TakeAnswer() { return std::move(answer_); }
  // When the last event came: [DONE] of a stream.
  absl::Duration end() const { return end_; }

 private:
  absl::Status TakeEvent(absl::string_view event, absl::Duration at);
  void TakeOpenai(const boost::json::object& object, absl::Duration at);
  void TakeGenerate(const boost::json::object& object, absl::Duration at);
  void AddText(absl::string_view text, absl::Duration at);

  const Backend backend_;
  const bool is_stream_;
  EventStream events_;
  std::string body_;  // of what is no stream
  Answer answer_;
  int num_tokens_ = 0;  // so far, of generate
  bool is_done_ = false;
  absl::Duration end_;
};

}  // namespace tandem::bench_serving
