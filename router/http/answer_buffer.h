// The bytes of one answer on their way to the socket: HTTP/1.1 framing and coalescing, no socket.
//
// Everything written between two calls of Take() becomes one chunk, so tokens that are ready together cost one chunk
// and one write. Tested by answer_buffer_test.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "router/http/http_message.h"

namespace tandem::router {

class AnswerBuffer final {
 public:
  struct Terms {
    bool is_http_1_0 = false;  // no chunked coding: a stream ends with its connection
    bool is_head = false;      // headers only
    bool keep_alive = true;    // what the request allows
  };

  explicit AnswerBuffer(const Terms& terms) : terms_(terms) {}

  // No keep-alive from here on; said in the headers where they have not been written yet.
  void CloseAfterwards() { terms_.keep_alive = false; }

  // Before the answer begins.
  void AddHeader(absl::string_view name, absl::string_view value);
  void Respond(HttpResponse response);
  void StartStream(const std::string& content_type);
  void Write(absl::string_view bytes);
  void Finish();
  // An interim response before the answer; nothing where the answer has begun or the client knows none.
  void WriteContinue();

  // Moves what is ready into *wire (which is cleared first); empty where nothing is.
  void Take(std::string* wire);

  bool has_started() const { return has_started_; }
  bool is_finished() const { return is_finished_; }
  bool keeps_alive() const { return terms_.keep_alive; }
  size_t num_bytes() const { return head_.size() + body_.size(); }

 private:
  void AppendHead(int status, const std::string& content_type);

  Terms terms_;
  std::string extra_headers_;
  std::string head_;  // goes out as it is, before body_
  std::string body_;  // of a stream: not yet a chunk
  bool has_started_ = false;
  bool is_stream_ = false;
  bool is_finished_ = false;
  bool is_end_taken_ = false;
};

}  // namespace tandem::router
