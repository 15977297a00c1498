#include "router/config.h"

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "router/cors.h"
#include "router/discovery/worker_lists.h"

namespace tandem::router {
namespace {

absl::Status CheckDnsName(const std::string& name, const char* field) {
  if (name.empty()) return absl::OkStatus();
  const absl::StatusOr<base::HostPort> parsed = base::ParseHostPort(name);
  if (parsed.ok() && parsed->port > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, ": ", parsed.ok() ? absl::StrCat(name, " has no port") : std::string(parsed.status().message())));
}

}  // namespace

void DefineRouterConfig(base::ConfigSchema& schema, RouterConfig* config) {
  schema.String("cluster.model_path", &config->model_path,
                "Checkpoint folder in Hugging Face layout; the router reads its tokenizer and configuration.");
  schema.Int64("cluster.context_length", &config->context_length, {.unit = "tokens", .min = 0, .max = 1 << 24},
               "Prompt and answer of one request together; 0 takes the checkpoint's max_position_embeddings.");
  for (const char* const field :
       {"kv_cache_dtype", "page_size", "load_format", "index_topk_pattern", "index_topk_freq",
        "dense_attention_max_context", "speculative.num_steps", "speculative.topk", "speculative.num_draft_tokens"}) {
    schema.String(
        absl::StrCat("cluster.", field), &config->of_workers,
        "The workers' setting, which they check: here so that one cluster section serves all three services.");
  }
  schema.String("process.served_model_name", &config->served_model_name,
                "Name of the model in requests and answers; empty takes the last part of model_path.");
  schema.Bool("process.allow_auto_truncate", &config->allows_auto_truncate,
              "Cut a prompt that leaves no room for its answer from the left instead of refusing it; "
              "usage.prompt_tokens_details.truncated_tokens says by how much.");
  schema.Choice("process.chat.format", &config->chat_format, {"auto", "v3.2", "v3.2-speciale", "v3.1"},
                "Prompt format of chat requests; auto chooses by the checkpoint. v3.1 is V3.1-Terminus and V3.2-Exp.");
  schema.String("process.chat.tools_preamble", &config->chat_tools_preamble,
                "File with the text that introduces tools to the model, {tools} where they stand; empty takes the "
                "checkpoint's own, without which requests may bring no tools.");
  schema.String("process.instance", &config->instance,
                "Stable name of this router to its workers; empty takes host name and port.");
  schema.String("process.host", &config->host, "Address to listen on; 0.0.0.0 or :: for all.");
  schema.Int("process.port", &config->port, {.unit = "", .min = 0, .max = 65535},
             "HTTP port; 0 takes a free one and logs it.");
  schema.Int("process.num_shards", &config->num_shards, {.unit = "threads", .min = 1, .max = 256},
             "Shards, one thread each: a listener, connections to all workers, and the requests that came in there.");
  schema.StringList("process.prefill_workers", &config->prefill_workers,
                    "host:port of the gRPC service of every prefill worker.");
  schema.StringList("process.decode_workers", &config->decode_workers,
                    "host:port of the gRPC service of every decode worker.");
  schema.String(
      "process.discovery.file", &config->discovery_file,
      "YAML file with further workers, read again at every interval: prefill_workers and decode_workers, each "
      "a list of host:port. A worker that is no longer named gets nothing new and finishes what it has.");
  schema.String("process.discovery.prefill_dns", &config->discovery_prefill_dns,
                "host:port; every address that the name has in DNS is a prefill worker, asked again at every interval. "
                "In Kubernetes the name of a headless Service.");
  schema.String("process.discovery.decode_dns", &config->discovery_decode_dns, "The same for decode workers.");
  schema.Duration("process.discovery.interval", &config->discovery_interval, absl::Milliseconds(100), absl::Hours(1),
                  "Between two looks at the file and the names.");
  schema.String("process.discovery.kubernetes.prefill_selector", &config->kubernetes_prefill_selector,
                "Labels of the EndpointSlices whose ready endpoints are prefill workers, as kubectl get -l takes them, "
                "for example kubernetes.io/service-name=tandem-prefill-pods. Listed and watched at the API server of "
                "the pod's cluster; needs the right to do so.");
  schema.String("process.discovery.kubernetes.decode_selector", &config->kubernetes_decode_selector,
                "The same for decode workers.");
  schema.String("process.discovery.kubernetes.namespace", &config->kubernetes_namespace,
                "Where the EndpointSlices are; empty takes the pod's own namespace.");
  schema.String("process.discovery.kubernetes.port_name", &config->kubernetes_port_name,
                "Name of the workers' gRPC port in the EndpointSlices.");
  schema.Duration("process.discovery.kubernetes.list_interval", &config->kubernetes_list_interval, absl::Seconds(1),
                  absl::Hours(1),
                  "Between two whole lists, whatever the watch has said in between: nothing is missed for longer.");
  schema.String("process.discovery.kubernetes.service_account_folder", &config->kubernetes_service_account_folder,
                "With the files token, ca.crt and namespace; the token is read anew for each request.");
  schema.Bool(
      "process.worker_changes", &config->allows_worker_changes,
      "Take POST and DELETE /workers, from anybody who reaches the port: whoever adds a worker reads prompts. GET "
      "is always answered.");
  schema.Duration("process.heartbeat_interval", &config->heartbeat_interval, absl::Milliseconds(10), absl::Minutes(1),
                  "How often workers get a sign of life.");
  schema.Duration("process.peer_silence_max", &config->peer_silence_max, absl::Milliseconds(30), absl::Minutes(5),
                  "A worker that is silent for longer is not used until it is heard again. Where it is not within 1 s, "
                  "its requests have lost it; the sum of both must stay below the decode workers' router_grace.");
  schema.Choice(
      "process.policy", &config->policy,
      {"prefix", "least_load", "round_robin", "random", "power_of_two", "consistent_hash"},
      "How a request's pair of workers is chosen (docs/prefix_cache.md): prefix weighs what of the prompt each "
      "prefill worker has cached, by its own word, against its line, decode's load and room, and the lane.");
  schema.Int64("process.stream_credit_bytes", &config->credit_bytes,
               {.unit = "bytes", .min = 64, .max = int64_t{1} << 24},
               "Tokens that a decode worker may send of one choice beyond those that its client has taken, in bytes: 8 "
               "for a token, more with logprobs; four tokens at least.");
  schema.Int("process.max_inflight_requests", &config->requests_max, {.unit = "requests", .min = 1, .max = 1 << 20},
             "Requests in flight at one time, over all shards; further ones wait in line.");
  schema.Int("process.max_queued_requests", &config->queued_max, {.unit = "requests", .min = 0, .max = 1 << 20},
             "Requests in line for a place in flight, over all shards; further ones get 429 with Retry-After.");
  schema.Duration("process.queue_timeout", &config->queue_time_max, absl::ZeroDuration(), absl::Hours(24),
                  "In line for a place in flight; then 429 with Retry-After.");
  schema.Int("process.max_choices_per_request", &config->choices_max, {.unit = "answers", .min = 1, .max = 1024},
             "Answers that one request may ask for: n times the number of its prompts; more gets 400.");
  schema.Duration("process.request_timeout", &config->request_time_max, absl::Seconds(1), absl::Hours(24 * 7),
                  "From a whole request to the end of its answer; then the request is cancelled and fails with 504.");
  schema.Duration("process.drain_notice", &config->drain_notice, absl::ZeroDuration(), absl::Hours(1),
                  "After SIGTERM, with /readyz at 503 and everything still served, for load balancers to notice.");
  schema.Duration("process.drain_grace", &config->drain_grace, absl::ZeroDuration(), absl::Hours(24),
                  "After the notice, for requests under way; those still running then fail with 503.");
  schema.Bool("process.failover", &config->has_failover,
              "Go on with a request on other workers where its own fail; the client's bytes are the same.");
  schema.Duration("process.failover_wait", &config->failover_wait, absl::ZeroDuration(), absl::Hours(1),
                  "How long an answer that has begun waits for workers to go on with; then it ends with an error. What "
                  "has given nothing yet waits only for a worker whose stream has just broken.");
  schema.Int(
      "process.failovers_per_second", &config->failovers_per_second, {.unit = "prompts", .min = 1, .max = 1000000},
      "Of each shard: prompts that go on elsewhere within a second after a worker's failure, and as many at once "
      "after a quiet second; the others go later, in turn.");
  schema.Duration("process.sse_keepalive_interval", &config->keepalive_interval, absl::ZeroDuration(), absl::Hours(24),
                  "Silence after which a stream gets a comment that keeps proxies from cutting it; 0 for never.");
  schema.Int64("process.stream_unsent_bytes_max", &config->unsent_bytes_max,
               {.unit = "bytes", .min = 1024, .max = int64_t{1} << 30},
               "Answer bytes a slow client may leave unread in the router; beyond it tokens wait as ids.");
  schema.Int64("process.http.body_bytes_max", &config->body_bytes_max,
               {.unit = "bytes", .min = 1024, .max = int64_t{1} << 32}, "Largest request body; more gets 413.");
  schema.Int(
      "process.http.connections_max", &config->connections_max, {.unit = "connections", .min = 1, .max = 1 << 20},
      "Client connections of one shard. Beyond it the one that has waited for a request for longest gives way, after 5 "
      "s; where all are busy, further ones get 503 and are closed.");
  schema.Duration("process.http.idle_timeout", &config->idle_max, absl::Milliseconds(100), absl::Hours(24),
                  "A connection between two requests.");
  schema.Duration("process.http.header_timeout", &config->header_time_max, absl::Milliseconds(100), absl::Hours(1),
                  "From the first byte of a request to the end of its headers; then 408.");
  schema.Duration("process.http.body_stall_timeout", &config->body_stall_max, absl::Milliseconds(100), absl::Hours(1),
                  "Between two pieces of a request body; then 408.");
  schema.Duration("process.http.write_stall_timeout", &config->write_stall_max, absl::Milliseconds(100), absl::Hours(1),
                  "A client that takes no byte of its answer; then it counts as having left.");
  base::AddPeerSecurityFields(schema, config->peers, /*listens=*/false);
  schema.String(
      "process.auth.api_keys_file", &config->api_keys_file,
      "File of client keys, one a line, # for comments; requests then need Authorization: Bearer <key>. Behind a "
      "key may stand priority=low or priority=high. Read at the start.");
  schema.String("process.auth.api_keys_env", &config->api_keys_env,
                "Name of an environment variable with client keys in the same form, beside those of the file.");
  schema.String("process.auth.admin_keys_file", &config->admin_keys_file,
                "File of administrators' keys: /abort_request, /flush_cache, /v1/loads, /workers and /statusz then "
                "take no other; "
                "they open everything else, too.");
  schema.String("process.auth.admin_keys_env", &config->admin_keys_env,
                "Name of an environment variable with administrators' keys, beside those of the file.");
  schema.String(
      "process.tls.certificate_file", &config->tls_certificate_file,
      "PEM file with the certificate chain, leaf first: the router then speaks HTTPS alone, TLS 1.2 or newer. "
      "New connections follow the file when it changes.");
  schema.String("process.tls.key_file", &config->tls_key_file, "PEM file with the certificate's private key.");
  schema.StringList(
      "process.cors.allowed_origins", &config->cors_origins,
      "Web pages that may read answers, as https://host or https://host:port; * for all; empty for none.");
  schema.Int("process.timelines", &config->timelines, {.unit = "requests", .min = 0, .max = 65536},
             "Requests that have ended whose timelines /debug/requests keeps, some 2 KB each, beside those of the last "
             "hour whose clients waited longest; 0 keeps none, of running requests neither.");
  schema.Duration("process.timeline_gap", &config->timeline_gap, absl::ZeroDuration(), absl::Hours(1),
                  "A client's wait between two tokens that is longer is in its request's timeline.");
  schema.Duration("process.pool_shortage.ttft_limit", &config->ttft_limit, absl::Milliseconds(1), absl::Hours(1),
                  "Longest time to first token that is good: the line of the prefill pool is held against it, and "
                  "finished prompts.");
  schema.Duration("process.pool_shortage.itl_limit", &config->itl_limit, absl::Microseconds(1), absl::Hours(1),
                  "Longest mean time between tokens that is good, of finished prompts.");
  schema.Duration("process.pool_shortage.hold", &config->shortage_hold, absl::Milliseconds(100), absl::Hours(1),
                  "How long a pool must be short, or no longer be, before the router says so "
                  "(tandem_router_pool_short).");
  schema.Choice("process.log_requests", &config->log_requests, {"none", "summary", "parameters", "prompts"},
                "What is logged of each request: nothing; a line at its end; one at its begin, too, with its sampling; "
                "its prompts, too, as text. Only prompts logs what clients have written.");
}

absl::Status CheckRouterConfig(const RouterConfig& config) {
  if (config.model_path.empty()) return absl::InvalidArgumentError("cluster.model_path is empty, must name a folder");
  if (config.peer_silence_max < 2 * config.heartbeat_interval) {
    return absl::InvalidArgumentError(absl::StrCat(
        "process.peer_silence_max ", absl::FormatDuration(config.peer_silence_max),
        " is less than two of process.heartbeat_interval ", absl::FormatDuration(config.heartbeat_interval)));
  }
  if (config.tls_certificate_file.empty() != config.tls_key_file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "process.tls.", config.tls_key_file.empty() ? "key_file" : "certificate_file", " is missing: TLS takes both"));
  }
  RETURN_IF_ERROR(base::ValidatePeerSecurity(config.peers));
  RETURN_IF_ERROR(CorsPolicy::Validate(config.cors_origins));
  RETURN_IF_ERROR(CheckDnsName(config.discovery_prefill_dns, "process.discovery.prefill_dns"));
  RETURN_IF_ERROR(CheckDnsName(config.discovery_decode_dns, "process.discovery.decode_dns"));
  if (config.kubernetes_port_name.empty()) {
    return absl::InvalidArgumentError("process.discovery.kubernetes.port_name is empty, must name a port");
  }
  return CheckedWorkerLists(config.prefill_workers, config.decode_workers, "process.").status();
}

}  // namespace tandem::router
