#include "router/routes.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "router/answer_writer.h"
#include "router/openai/api_error.h"
#include "router/pair_picker.h"
#include "router/statusz.h"

namespace tandem::router {
namespace {

constexpr char kChatPath[] = "/v1/chat/completions";
constexpr char kCompletionsPath[] = "/v1/completions";
constexpr char kModelsPath[] = "/v1/models";
constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr absl::Duration kRetryAfterDrain = absl::Seconds(1);  // another router serves meanwhile, as a rule
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";

HttpResponse Text(int status, std::string body, const char* content_type = kPlainText) {
  HttpResponse response;
  response.status = status;
  response.content_type = content_type;
  response.body = std::move(body);
  return response;
}

HttpResponse MethodNotAllowed(const HttpRequest& request, const char* allowed) {
  HttpResponse response = ErrorResponse(
      absl::UnimplementedError(absl::StrCat(request.path, " takes ", allowed, ", got ", Quoted(request.method))));
  response.headers.emplace_back("Allow", allowed);
  return response;
}

}  // namespace

Routes::Routes(const Parts& parts, std::string instance, ModelCard model_card)
    : parts_(parts), instance_(std::move(instance)), model_card_(std::move(model_card)) {}

void Routes::Handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  if (request.path == kChatPath || request.path == kCompletionsPath) {
    if (request.method != "POST") return exchange->Respond(MethodNotAllowed(request, "POST"));
    if (is_draining_)
      return exchange->Respond(
          ErrorResponse(WithRetryAfter(absl::UnavailableError("router is draining"), kRetryAfterDrain)));
    if (request.path == kChatPath) return parts_.pipeline->ServeChat(std::move(exchange));
    return parts_.pipeline->ServeCompletion(std::move(exchange));
  }
  const bool is_models = request.path == kModelsPath || absl::StartsWith(request.path, absl::StrCat(kModelsPath, "/"));
  const bool is_known = is_models || request.path == "/health" || request.path == "/readyz" ||
                        request.path == "/metrics" || request.path == "/statusz";
  if (!is_known) {
    return exchange->Respond(ErrorResponse(
        WithDetails(absl::NotFoundError(absl::StrCat("there is no ", Quoted(request.path))), "", "unknown_path")));
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return exchange->Respond(MethodNotAllowed(request, "GET"));
  }
  if (is_models) return exchange->Respond(Models(request.path));
  if (request.path == "/health") return exchange->Respond(Text(200, "ok\n"));
  if (request.path == "/readyz") return exchange->Respond(Ready());
  if (request.path == "/metrics") return exchange->Respond(Text(200, parts_.metrics->Expose(), kMetricsText));
  PostStatus();
  exchange->Respond(Text(200, parts_.status_board->Text(parts_.clock->Now())));
}

void Routes::OnRefused(int status) { parts_.metrics->CountHttpRefusal(status); }

void Routes::PostStatus() {
  parts_.status_board->Post(
      parts_.shard,
      StatuszText(instance_, parts_.cluster->view(), *parts_.admission, parts_.pipeline->Requests(kRequestsShownMax)),
      parts_.clock->Now());
}

HttpResponse Routes::Models(const std::string& path) const {
  HttpResponse response;
  if (path == kModelsPath) {
    response.body = ModelListBody(model_card_);
    return response;
  }
  const std::string id = path.substr(sizeof(kModelsPath));  // behind the slash; served names may contain slashes
  if (id != model_card_.id) {
    return ErrorResponse(WithDetails(absl::NotFoundError(absl::StrCat("model: there is no model ", Quoted(id))),
                                     "model", "model_not_found"));
  }
  response.body = ModelBody(model_card_);
  return response;
}

HttpResponse Routes::Ready() const {
  if (is_leaving_) return Text(503, "draining\n");
  parts_.readiness->Post(parts_.shard, CheckReady(parts_.cluster->view()));
  const absl::Status ready = parts_.readiness->Check();
  return ready.ok() ? Text(200, "ready\n") : Text(503, absl::StrCat(std::string(ready.message()), "\n"));
}

}  // namespace tandem::router
