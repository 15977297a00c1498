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

// Hands work(body) to done() on the shard's thread, where the call is made, too.
template <typename Work, typename Done>
void WorkOnBody(const BodyEndpointParts& parts, std::shared_ptr<Exchange> exchange, Work work, Done done) {
  std::string body = exchange->TakeBody();
  if (body.size() <= kInlineBytesMax) return done(*exchange, work(body, *parts.context));
  // The exchange is the shard's: it travels through the pool untouched, and its last owner is on the shard's thread.
  asio::thread_pool& lane = parts.preparation->For(body.size());
  asio::post(lane, [parts, work, done, body = std::move(body), exchange = std::move(exchange)]() mutable {
    auto result = std::make_shared<decltype(work(body, *parts.context))>(work(body, *parts.context));
    parts.post([result, done, exchange = std::move(exchange)] { done(*exchange, std::move(*result)); });
  });
}

}  // namespace

void ServeBody(const BodyEndpointParts& parts, std::shared_ptr<Exchange> exchange, AnswerBody answer) {
  WorkOnBody(parts, std::move(exchange), answer, Answer);
}

void ServePrepared(const BodyEndpointParts& parts, std::shared_ptr<Exchange> exchange, PrepareBody prepare,
                   std::function<std::string(const PreparedRequest& prepared)> answer) {
  WorkOnBody(parts, std::move(exchange), prepare,
             [answer = std::move(answer)](Exchange& asked, const absl::StatusOr<PreparedRequest>& prepared) {
               if (!prepared.ok()) return Answer(asked, prepared.status());
               Answer(asked, answer(*prepared));
             });
}

}  // namespace tandem::router
