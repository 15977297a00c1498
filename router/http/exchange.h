// One request and the way back to its client. Belongs to the shard's thread.
//
// Answered once: by Respond(), or by StartStream(), any number of Write() and Finish(). Nothing blocks: bytes go into a
// buffer, and everything that is ready when the socket can take it leaves in one write. Whoever writes a lot watches
// num_unsent_bytes() and goes on at kDrained. An exchange dropped without an answer is answered with a 500, one dropped
// inside a stream breaks the connection: a client never mistakes either for an end.
// After kClientLeft or kClientStalled everything written is dropped.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "router/http/http_message.h"

namespace tandem::router {

enum class ExchangeEvent {
  kClientLeft,     // reset or closed; at most once
  kClientStalled,  // reads nothing for HttpLimits::write_stall_max: in its place
  kDrained,        // the buffer is empty; once for each NotifyWhenDrained()
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Takes the body out of request(), so that it does not live as long as the answer. It counts against the server's
  // bound on bodies until BodyDone() or the end of the exchange.
  virtual std::string TakeBody() = 0;
  virtual void BodyDone() = 0;
  // Called on the shard's thread, never from inside a call of this class.
  virtual void SetObserver(std::function<void(ExchangeEvent)> observer) = 0;

  // For the answer, before it begins; value: without line feeds.
  virtual void AddHeader(const std::string& name, const std::string& value) = 0;
  virtual void Respond(HttpResponse response) = 0;

  // probe: bytes that mean nothing to a reader of this stream. They are sent to a client that closed its sending side,
  // because only an answer to them tells a half-closed client from one that has left.
  virtual void StartStream(const std::string& content_type, const std::string& probe) = 0;
  virtual void Write(absl::string_view bytes) = 0;
  virtual void Finish() = 0;

  virtual size_t num_unsent_bytes() const = 0;
  virtual void NotifyWhenDrained() = 0;
};

}  // namespace tandem::router
