#include "router/http/answer_buffer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::router {

void AnswerBuffer::AppendHead(int status, const std::string& content_type) {
  TANDEM_CHECK(!has_started_, "a request is answered once");
  has_started_ = true;
  absl::StrAppend(&head_, "HTTP/1.1 ", status, " ", HttpReason(status), "\r\nContent-Type: ", content_type, "\r\n",
                  extra_headers_);
  extra_headers_ = std::string();
}

void AnswerBuffer::AddHeader(absl::string_view name, absl::string_view value) {
  TANDEM_CHECK(!has_started_, "headers come before the answer");
  absl::StrAppend(&extra_headers_, name, ": ", value, "\r\n");
}

void AnswerBuffer::Respond(HttpResponse response) {
  AppendHead(response.status, response.content_type);
  for (const auto& [name, value] : response.headers) absl::StrAppend(&head_, name, ": ", value, "\r\n");
  absl::StrAppend(
      &head_, "Content-Length: ", response.body.size(), "\r\n",
      terms_.keep_alive ? (terms_.is_http_1_0 ? "Connection: keep-alive\r\n" : "") : "Connection: close\r\n", "\r\n");
  if (!terms_.is_head) body_ = std::move(response.body);
  is_finished_ = true;
}

void AnswerBuffer::StartStream(const std::string& content_type) {
  AppendHead(200, content_type);
  is_stream_ = true;
  if (terms_.is_http_1_0) terms_.keep_alive = false;
  absl::StrAppend(&head_, "Cache-Control: no-cache\r\n", terms_.keep_alive ? "" : "Connection: close\r\n",
                  terms_.is_http_1_0 ? "" : "Transfer-Encoding: chunked\r\n", "\r\n");
}

void AnswerBuffer::Write(absl::string_view bytes) {
  TANDEM_CHECK(is_stream_ && !is_finished_, "only an open stream is written to");
  if (!terms_.is_head) body_.append(bytes.data(), bytes.size());
}

void AnswerBuffer::Finish() {
  TANDEM_CHECK(is_stream_ && !is_finished_, "only an open stream is finished");
  is_finished_ = true;
}

void AnswerBuffer::WriteContinue() {
  if (!has_started_ && !terms_.is_http_1_0) head_ += "HTTP/1.1 100 Continue\r\n\r\n";
}

void AnswerBuffer::Take(std::string* wire) {
  wire->clear();
  wire->swap(head_);
  const bool is_chunked = is_stream_ && !terms_.is_http_1_0 && !terms_.is_head;
  if (!is_chunked) {
    *wire += body_;
    body_.clear();
    return;
  }
  if (!body_.empty()) {
    absl::StrAppend(wire, absl::Hex(body_.size()), "\r\n", body_, "\r\n");
    body_.clear();
  }
  if (is_finished_ && !std::exchange(is_end_taken_, true)) *wire += "0\r\n\r\n";
}

}  // namespace tandem::router
