#include "router/routes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "prometheus/gauge.h"
#include "router/answer_writer.h"
#include "router/chat_preparation.h"
#include "router/completion_preparation.h"
#include "router/dashboard/dashboard_state.h"
#include "router/dashboard/page_files.h"
#include "router/generate_preparation.h"
#include "router/health_probe.h"
#include "router/openai/abort_request.h"
#include "router/openai/api_error.h"
#include "router/openapi_document.h"
#include "router/pair_picker.h"
#include "router/pair_question.h"
#include "router/route_answer.h"
#include "router/statusz.h"
#include "router/timeline/timeline_text.h"
#include "router/tokenize_answers.h"
#include "router/worker_administration.h"

namespace tandem::router {
namespace {

constexpr char kModelsPath[] = "/v1/models";
constexpr char kTimelinesPath[] = "/debug/requests";
constexpr char kJson[] = "application/json";
constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kMetricsText[] = "text/plain; version=0.0.4; charset=utf-8";
constexpr absl::Duration kRetryAfterDrain = absl::Seconds(1);  // another router serves meanwhile, as a rule

constexpr char kGet[] = "GET, HEAD";
constexpr char kPost[] = "POST";
constexpr RouteAccess kOpen = RouteAccess::kOpen;
constexpr RouteAccess kClient = RouteAccess::kClient;
constexpr RouteAccess kAdmin = RouteAccess::kAdmin;

constexpr size_t kHttpIdBytesMax = 128;

constexpr RequestPipeline::Endpoint kChat = {"chatcmpl-", PrepareChat};
constexpr RequestPipeline::Endpoint kCompletion = {"cmpl-", PrepareCompletion};
constexpr RequestPipeline::Endpoint kGenerate = {"gnt-", PrepareGenerate};
constexpr RequestPipeline::Endpoint kHealthProbe = {"health-", PrepareHealthProbe};

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

HttpResponse UnknownPath(const std::string& path) {
  return ErrorResponse(
      WithDetails(absl::NotFoundError(absl::StrCat("there is no ", Quoted(path))), "", "unknown_path"));
}

HttpResponse Unauthorized(const absl::Status& error) {
  HttpResponse response = ErrorResponse(error);
  response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

// An id as a client may send it: it is told again in a header, and logged.
bool IsRequestId(absl::string_view id) {
  return !id.empty() && id.size() <= kHttpIdBytesMax && std::all_of(id.begin(), id.end(), absl::ascii_isgraph);
}

// %3C -> <. What is no such triple stays as it is.
std::string PercentDecoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && absl::ascii_isxdigit(text[i + 1]) &&
        absl::ascii_isxdigit(text[i + 2])) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool Allows(absl::string_view methods, absl::string_view method) {
  for (const absl::string_view allowed : absl::StrSplit(methods, ", ")) {
    if (allowed == method) return true;
  }
  return false;
}

}  // namespace

// One of the three says who answers.
struct Routes::Route {
  const char* path;  // where it ends with '/', of every path below it
  const char* methods;
  RouteAccess access;
  const RequestPipeline::Endpoint* generation = nullptr;  // 503 while the router drains
  AnswerBody body = nullptr;
  void (Routes::*serve)(Exchanged exchange) = nullptr;
};

const Routes::Route Routes::kRoutes[] = {
    {"/v1/chat/completions", kPost, kClient, &kChat},
    {"/v1/completions", kPost, kClient, &kCompletion},
    {"/generate", "POST, PUT", kClient, &kGenerate},
    {"/health_generate", kGet, kClient, &kHealthProbe},

    {"/tokenize", kPost, kClient, nullptr, TokenizeBody},
    {"/v1/tokenize", kPost, kClient, nullptr, TokenizeBody},
    {"/detokenize", kPost, kClient, nullptr, DetokenizeBody},
    {"/v1/detokenize", kPost, kClient, nullptr, DetokenizeBody},

    {kModelsPath, kGet, kClient, nullptr, nullptr, &Routes::ServeModels},
    {"/v1/models/", kGet, kClient, nullptr, nullptr, &Routes::ServeModels},
    {"/model_info", kGet, kClient, nullptr, nullptr, &Routes::ServeModelInfo},
    {"/get_model_info", kGet, kClient, nullptr, nullptr, &Routes::ServeModelInfo},
    {"/server_info", kGet, kClient, nullptr, nullptr, &Routes::ServeServerInfo},
    {"/get_server_info", kGet, kClient, nullptr, nullptr, &Routes::ServeServerInfo},

    {"/v1/loads", kGet, kAdmin, nullptr, nullptr, &Routes::ServeLoads},
    {"/flush_cache", "GET, HEAD, POST", kAdmin, nullptr, nullptr, &Routes::ServeFlushCache},
    {"/abort_request", kPost, kAdmin, nullptr, nullptr, &Routes::ServeAbort},
    {"/workers", "GET, HEAD, POST", kAdmin, nullptr, nullptr, &Routes::ServeWorkers},
    {"/workers/", "GET, HEAD, POST, DELETE", kAdmin, nullptr, nullptr, &Routes::ServeWorker},
    {"/statusz", kGet, kAdmin, nullptr, nullptr, &Routes::ServeStatusz},
    {"/debug/state", kGet, kAdmin, nullptr, nullptr, &Routes::ServeState},
    {"/debug/route", kPost, kAdmin, nullptr, nullptr, &Routes::ServeRoute},
    {kTimelinesPath, kGet, kAdmin, nullptr, nullptr, &Routes::ServeTimelines},
    {"/debug/requests/", kGet, kAdmin, nullptr, nullptr, &Routes::ServeTimelines},

    {kDashboardPath, kGet, kOpen, nullptr, nullptr, &Routes::ServePage},
    {"/dashboard/", kGet, kOpen, nullptr, nullptr, &Routes::ServePage},
    {"/openapi.json", kGet, kOpen, nullptr, nullptr, &Routes::ServeOpenApi},
    {"/health", kGet, kOpen, nullptr, nullptr, &Routes::ServeHealth},
    {"/readyz", kGet, kOpen, nullptr, nullptr, &Routes::ServeReady},
    {"/metrics", kGet, kOpen, nullptr, nullptr, &Routes::ServeMetrics},
};

const Routes::Route* Routes::FindRoute(const std::string& path) {
  for (const Route& route : kRoutes) {
    if (path == route.path || (absl::EndsWith(route.path, "/") && absl::StartsWith(path, route.path))) return &route;
  }
  return nullptr;
}

Routes::Routes(const Parts& parts, std::string instance, ModelCard model_card)
    : parts_(parts),
      body_parts_({parts.post, parts.preparation, parts.context}),
      instance_(std::move(instance)),
      model_card_(std::move(model_card)) {}

RequestPipeline::HttpId Routes::HttpIdOf(const HttpRequest& request, const Route* route) {
  const absl::string_view given = request.Header("x-request-id");
  if (IsRequestId(given)) return {std::string(given), true};
  const bool has_own = route != nullptr && route->generation != nullptr;
  return {(has_own ? *route->generation : RequestPipeline::Endpoint{"req-", nullptr}).MakeId()};
}

void Routes::Handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Route* route = FindRoute(request.path);
  const RequestPipeline::HttpId http_id = HttpIdOf(request, route);
  exchange->AddHeader("x-request-id", http_id.id);
  for (const auto& [name, value] : parts_.cors->HeadersFor(request)) exchange->AddHeader(name, value);
  if (route == nullptr) return exchange->Respond(UnknownPath(request.path));
  if (parts_.cors->IsPreflight(request)) {
    return exchange->Respond(CorsPolicy::PreflightAnswer(request, route->methods));
  }
  if (!Allows(route->methods, request.method)) return exchange->Respond(MethodNotAllowed(request, route->methods));
  const absl::StatusOr<Caller> caller = parts_.access->Check(route->access, request.Header("authorization"));
  if (!caller.ok()) return exchange->Respond(Unauthorized(caller.status()));
  Serve(std::move(exchange), *route, http_id, *caller);
}

void Routes::Serve(std::shared_ptr<Exchange> exchange, const Route& route, const RequestPipeline::HttpId& http_id,
                   const Caller& caller) {
  if (route.body != nullptr) return ServeBody(body_parts_, std::move(exchange), route.body);
  if (route.serve != nullptr) return (this->*route.serve)(std::move(exchange));
  if (is_draining_) {
    return exchange->Respond(
        ErrorResponse(WithRetryAfter(absl::UnavailableError("router is draining"), kRetryAfterDrain)));
  }
  parts_.pipeline->Serve(std::move(exchange), *route.generation, http_id, caller);
}

void Routes::OnRefused(int status) { parts_.metrics->CountHttpRefusal(status); }

void Routes::PostStatus() {
  StatusBoard::Word word;
  word.requests = parts_.pipeline->Requests(kRequestsShownMax);
  word.text = StatuszText(instance_, parts_.cluster->view(), *parts_.admission, word.requests);
  if (parts_.shortage != nullptr) absl::StrAppend(&word.text, "\npool short: ", parts_.shortage->ToString(), "\n");
  word.num_in_flight = parts_.admission->num_in_flight();
  word.num_waiting = parts_.admission->num_waiting();
  word.posted_at = parts_.clock->Now();
  parts_.status_board->Post(parts_.shard, std::move(word));
}

void Routes::ServeModels(Exchanged exchange) {
  const std::string& path = exchange->request().path;
  if (path == kModelsPath) return exchange->Respond(Text(200, ModelListBody(model_card_), kJson));
  const std::string id = path.substr(sizeof(kModelsPath));  // behind the slash; served names may contain slashes
  if (id == model_card_.id) return exchange->Respond(Text(200, ModelBody(model_card_), kJson));
  exchange->Respond(ErrorResponse(WithDetails(
      absl::NotFoundError(absl::StrCat("model: there is no model ", Quoted(id))), "model", "model_not_found")));
}

void Routes::ServeModelInfo(Exchanged exchange) { exchange->Respond(Text(200, ModelInfoBody(*parts_.context), kJson)); }

RouterLoad Routes::LoadOfAllShards() const {
  return {static_cast<int64_t>(parts_.metrics->requests_in_flight.Value()),
          static_cast<int64_t>(parts_.metrics->requests_waiting.Value())};
}

void Routes::ServeServerInfo(Exchanged exchange) {
  exchange->Respond(
      Text(200, ServerInfoBody(*parts_.context, instance_, parts_.cluster->view(), LoadOfAllShards()), kJson));
}

void Routes::ServeLoads(Exchanged exchange) {
  absl::StatusOr<std::string> body =
      LoadsBody(exchange->request().query, parts_.cluster->view(), LoadOfAllShards(), parts_.clock->WallTime());
  exchange->Respond(body.ok() ? Text(200, *std::move(body), kJson) : ErrorResponse(body.status()));
}

// Idle pages go at once, those in use with their last request: what tools that begin with a cold cache want.
void Routes::ServeFlushCache(Exchanged exchange) {
  exchange->Respond(Text(200, absl::StrCat("prefix caches of ", parts_.cluster->FlushPrefixCaches(), " workers\n")));
}

void Routes::ServeAbort(Exchanged exchange) {
  const absl::StatusOr<std::string> id = ParseAbortRequest(exchange->TakeBody());
  exchange->BodyDone();
  if (!id.ok()) return exchange->Respond(ErrorResponse(id.status()));
  parts_.abort_relay->AbortEverywhere(*id, parts_.post, [exchange, id = *id](int num_aborted) {
    LOG_INFO("requests aborted", {"req", id.empty() ? "all" : id}, {"requests", num_aborted});
    exchange->Respond(Text(200, absl::StrCat("{\"aborted\":", num_aborted, "}"), kJson));
  });
}

void Routes::ServeWorkers(Exchanged exchange) {
  if (exchange->request().method != "POST") {
    return exchange->Respond(Text(200, WorkersBody(parts_.cluster->view(), model_card_.id), kJson));
  }
  const std::string body = exchange->TakeBody();
  exchange->BodyDone();
  exchange->Respond(ChangeWorkers([&](WorkerDirectory& directory) { return AddWorker(body, directory); }));
}

void Routes::ServeWorker(Exchanged exchange) {
  const HttpRequest& request = exchange->request();
  absl::string_view id = absl::string_view(request.path).substr(sizeof("/workers/") - 1);
  const bool is_drain = absl::ConsumeSuffix(&id, "/drain");
  if (is_drain != (request.method == "POST")) {
    return exchange->Respond(MethodNotAllowed(request, is_drain ? kPost : "GET, HEAD, DELETE"));
  }
  if (is_drain) {
    return exchange->Respond(ChangeWorkers([&](WorkerDirectory& directory) { return DrainWorker(id, directory); }));
  }
  if (request.method == "DELETE") {
    return exchange->Respond(ChangeWorkers([&](WorkerDirectory& directory) { return RemoveWorker(id, directory); }));
  }
  absl::StatusOr<std::string> body = WorkerBody(parts_.cluster->view(), model_card_.id, id);
  exchange->Respond(body.ok() ? Text(200, *std::move(body), kJson) : ErrorResponse(body.status()));
}

HttpResponse Routes::ChangeWorkers(
    const std::function<absl::StatusOr<std::string>(WorkerDirectory& directory)>& change) const {
  if (parts_.directory == nullptr) {
    return ErrorResponse(absl::PermissionDeniedError("workers are not changed here: process.worker_changes is false"));
  }
  absl::StatusOr<std::string> body = change(*parts_.directory);
  return body.ok() ? Text(202, *std::move(body), kJson) : ErrorResponse(body.status());
}

void Routes::ServeOpenApi(Exchanged exchange) {
  const OpenApiLimits limits = {parts_.context->served_model_name, parts_.context->choices_max};
  exchange->Respond(Text(200, OpenApiDocument(limits), kJson));
}

void Routes::ServeHealth(Exchanged exchange) { exchange->Respond(Text(200, "ok\n")); }

absl::Status Routes::ReadinessOfAllShards() {
  parts_.readiness->Post(parts_.shard, CheckReady(parts_.cluster->view()));
  return parts_.readiness->Check();
}

void Routes::ServeReady(Exchanged exchange) {
  if (is_leaving_) return exchange->Respond(Text(503, "draining\n"));
  const absl::Status ready = ReadinessOfAllShards();
  exchange->Respond(ready.ok() ? Text(200, "ready\n") : Text(503, absl::StrCat(std::string(ready.message()), "\n")));
}

void Routes::ServeMetrics(Exchanged exchange) { exchange->Respond(Text(200, parts_.metrics->Expose(), kMetricsText)); }

void Routes::ServeTimelines(Exchanged exchange) {
  const HttpRequest& request = exchange->request();
  const absl::Duration now = parts_.clock->Now();
  if (request.path == kTimelinesPath) {
    return exchange->Respond(Text(200, TimelineListJson(*parts_.timelines, now), kJson));
  }
  const std::string id = request.path.substr(sizeof(kTimelinesPath));
  TimelineStore::Timeline timeline = parts_.timelines->Find(id);
  if (timeline == nullptr) timeline = parts_.timelines->Find(PercentDecoded(id));  // a browser's way of writing it
  if (timeline == nullptr) {
    return exchange->Respond(ErrorResponse(
        absl::NotFoundError(absl::StrCat("no request ", Quoted(id), " runs here or is among the last that did"))));
  }
  if (request.query.empty()) return exchange->Respond(Text(200, TimelineJson(timeline->snapshot(), now), kJson));
  if (request.query == "format=perfetto") {
    return exchange->Respond(Text(200, TimelineTrace(timeline->snapshot(), now), kJson));
  }
  exchange->Respond(ErrorResponse(
      FieldError("format", absl::StrCat("the query is ", Quoted(request.query), ", it can be format=perfetto"))));
}

void Routes::ServeStatusz(Exchanged exchange) {
  PostStatus();
  exchange->Respond(Text(200, parts_.status_board->Text(parts_.clock->Now())));
}

void Routes::ServeState(Exchanged exchange) {
  PostStatus();
  DashboardSources sources;
  sources.instance = instance_;
  sources.now = parts_.clock->Now();
  sources.wall_time = parts_.clock->WallTime();
  sources.ready = ReadinessOfAllShards();
  sources.is_draining = is_leaving_;
  sources.view = &parts_.cluster->view();
  sources.limits = parts_.admission->limits();
  sources.metrics = parts_.metrics;
  sources.board = parts_.status_board;
  sources.timelines = parts_.timelines;
  exchange->Respond(Text(200, DashboardState(sources), kJson));
}

void Routes::ServeRoute(Exchanged exchange) {
  ServePrepared(body_parts_, std::move(exchange), PrepareRoute, [this](const PreparedRequest& prepared) {
    const PairQuestion question = parts_.pipeline->NextQuestion(prepared.orders.front());
    return RouteAnswer(parts_.cluster->view(), question.request());
  });
}

void Routes::ServePage(Exchanged exchange) {
  const std::string& path = exchange->request().path;
  const PageFile* file = FindPageFile(path);
  exchange->Respond(file == nullptr ? UnknownPath(path) : PageFileResponse(*file));
}

}  // namespace tandem::router
