// Writes one chat answer to its client: what RequestState puts out, as a stream of events or as one body.
//
// A stream opens with the first news (or keep-alive comment), so whatever fails before it is a proper HTTP error;
// afterwards an error is an event in the stream, followed by [DONE] but by no finish_reason: a cut never looks like an
// end. Tested by answer_writer_test.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "router/http/exchange.h"
#include "router/openai/chat_response.h"
#include "router/request_state.h"

namespace tandem::router {

// An error before any answer; 429 and 503 carry Retry-After.
HttpResponse ErrorResponse(const absl::Status& error);

class AnswerWriter final {
 public:
  struct Form {
    bool is_stream = false;
    bool includes_usage = false;
    bool is_thinking = false;
  };

  AnswerWriter(std::shared_ptr<Exchange> exchange, const ChatIdentity& identity, const Form& form);

  // All news of one turn leave in one write.
  void Write(const RequestState::Output& output, const Usage& usage);
  // A comment in a stream that has had no news for long; opens the stream. Nothing for a whole answer.
  void WriteKeepalive();

  bool has_content() const { return has_content_; }

 private:
  void WriteStream(const RequestState::Output& output, const Usage& usage);
  void OpenStream();
  void WriteWhole(const RequestState::Output& output, const Usage& usage);

  const std::shared_ptr<Exchange> exchange_;
  const ChatIdentity identity_;
  const Form form_;
  const std::optional<ChatStreamFrames> frames_;
  ChatAnswer answer_;    // of a whole answer, as far as it has come
  std::string pending_;  // frames of this turn
  bool is_stream_open_ = false;
  bool has_role_ = false;
  bool has_content_ = false;
};

}  // namespace tandem::router
