#include "router/body_endpoint.h"

#include <utility>

#include "boost/asio/post.hpp"
#include "boost/asio/thread_pool.hpp"
#include "router/answer_writer.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

constexpr size_t kInlineBytesMax = size_t{32} << 10;  // as PipelineSettings::inline_body_bytes_max

void Answer(Exchange& exchange, absl::StatusOr<std::string> body) {
  exchange.BodyDone();
  if (!body.ok()) return exchange.Respond(ErrorResponse(body.status()));
  HttpResponse response;
  response.body = *std::move(body);
  exchange.Respond(std::move(response));
}

}  // namespace

void ServeBody(const BodyEndpointParts& parts, std::shared_ptr<Exchange> exchange, AnswerBody answer) {
  std::string body = exchange->TakeBody();
  if (body.size() <= kInlineBytesMax) return Answer(*exchange, answer(body, *parts.context));
  // The exchange is the shard's: it travels through the pool untouched, and its last owner is on the shard's thread.
  asio::thread_pool& lane = parts.preparation->For(body.size());
  asio::post(lane, [parts, answer, body = std::move(body), exchange = std::move(exchange)]() mutable {
    auto text = std::make_shared<absl::StatusOr<std::string>>(answer(body, *parts.context));
    parts.post([text, exchange = std::move(exchange)] { Answer(*exchange, std::move(*text)); });
  });
}

}  // namespace tandem::router
