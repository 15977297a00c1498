// Writes one answer to its client: the news of its choices, as a stream of events or as one body.
//
// A stream opens with the first news (or keep-alive comment), so whatever fails before it is a proper HTTP error;
// afterwards an error is an event in the stream, followed by [DONE] but by no finish_reason: a cut never looks like an
// end. Tested by answer_writer_test.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/http/exchange.h"
#include "router/openai/answer_format.h"

namespace tandem::router {

// An error before any answer; 429 and 503 carry Retry-After, 2 s where the error brings no advice of its own.
HttpResponse ErrorResponse(const absl::Status& error);

class AnswerWriter final {
 public:
  struct Form {
    bool is_stream = false;
    bool includes_usage = false;  // of a stream; a whole answer always says it
    int num_choices = 1;
    bool allows_comments = true;  // in a stream; else what keeps it alive is an empty line, which every reader skips
  };

  AnswerWriter(std::shared_ptr<Exchange> exchange, std::unique_ptr<AnswerFormat> format, const Form& form);

  // index: of the choice in the whole answer.
  void Write(int index, ChoiceDelta delta);
  // Every choice has ended.
  void Complete(const Usage& usage);
  void Fail(const absl::Status& error);
  // What means nothing, in a stream that has had no news for long; opens the stream. Nothing for a whole answer.
  void WriteKeepalive();

  bool has_content() const { return has_content_; }
  // What a whole answer takes so far, about, as it will be written down; 0 of a stream.
  size_t num_whole_bytes() const { return num_whole_bytes_; }

 private:
  void OpenStream();

  const std::shared_ptr<Exchange> exchange_;
  const std::unique_ptr<AnswerFormat> format_;
  const Form form_;
  std::vector<WholeChoice> choices_;  // of a whole answer, as far as they have come
  std::vector<bool> is_opened_;       // of a stream, by choice
  std::string pending_;               // events of this call
  size_t num_whole_bytes_ = 0;
  bool is_stream_open_ = false;
  bool has_content_ = false;
};

}  // namespace tandem::router
