// The router's process: settings, checkpoint, shards, then the wait for SIGTERM and the drain.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "base/config.h"
#include "base/exit_code.h"
#include "base/file_limit.h"
#include "base/grpc_log.h"
#include "base/log.h"
#include "base/peer_security.h"
#include "base/shutdown.h"
#include "base/status_macros.h"
#include "router/abort_relay.h"
#include "router/access_control.h"
#include "router/chat/prompt_format.h"
#include "router/config.h"
#include "router/cors.h"
#include "router/discovery/discovery.h"
#include "router/discovery/dns_workers.h"
#include "router/discovery/kubernetes_discovery.h"
#include "router/discovery/worker_directory.h"
#include "router/metrics.h"
#include "router/preparation_threads.h"
#include "router/prepared_request.h"
#include "router/readiness.h"
#include "router/shard.h"
#include "router/status_board.h"
#include "router/timeline/timeline_store.h"

namespace tandem::router {
namespace {

std::string DefaultInstance(int port) {
  char host[256] = "router";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", port);
}

std::string DefaultModelName(absl::string_view model_path) {
  while (absl::ConsumeSuffix(&model_path, "/")) {
  }
  return std::string(model_path.substr(model_path.rfind('/') + 1));
}

absl::StatusOr<ModelContext> MakeContext(const RouterConfig& config, const Tokenizer* tokenizer) {
  ModelContext context;
  context.tokenizer = tokenizer;
  ASSIGN_OR_RETURN(context.facts, LoadCheckpointFacts(config.model_path));
  ASSIGN_OR_RETURN(context.prompt_format,
                   LoadPromptFormat(config.model_path, config.chat_format, config.chat_tools_preamble));
  context.model_path = config.model_path;
  context.served_model_name =
      config.served_model_name.empty() ? DefaultModelName(config.model_path) : config.served_model_name;
  context.context_length = config.context_length == 0 ? context.facts.context_length : config.context_length;
  context.choices_max = config.choices_max;
  context.allows_auto_truncate = config.allows_auto_truncate;
  if (context.context_length > context.facts.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.context_length is ", context.context_length,
                                                   ", the checkpoint's max_position_embeddings is ",
                                                   context.facts.context_length));
  }
  if (tokenizer->num_ids() > context.facts.vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json has ids up to ", tokenizer->num_ids() - 1,
                                                   ", config.json has vocab_size ", context.facts.vocab_size));
  }
  return context;
}

RequestLog RequestLogOf(const std::string& name) {
  if (name == "none") return RequestLog::kNone;
  if (name == "parameters") return RequestLog::kParameters;
  return name == "prompts" ? RequestLog::kPrompts : RequestLog::kSummary;
}

Shard::Options ShardOptions(const RouterConfig& config) {
  Shard::Options options;
  options.host = config.host;
  options.port = config.port;
  options.port_sharing = config.num_shards > 1 ? PortSharing::kShared : PortSharing::kExclusive;
  const auto share = [&](int max) { return (max + config.num_shards - 1) / config.num_shards; };
  options.admission = {.in_flight_max = share(config.requests_max), .waiting_max = share(config.queued_max)};
  options.link_times = {.heartbeat_interval = config.heartbeat_interval, .silence_max = config.peer_silence_max};
  options.credit_bytes = config.credit_bytes;
  options.pipeline.policy = PairPolicyOf(config.policy);
  options.http.body_bytes_max = static_cast<size_t>(config.body_bytes_max);
  options.http.connections_max = config.connections_max;
  options.http.idle_max = config.idle_max;
  options.http.header_time_max = config.header_time_max;
  options.http.body_stall_max = config.body_stall_max;
  options.http.write_stall_max = config.write_stall_max;
  options.pipeline.queue_time_max = config.queue_time_max;
  options.pipeline.request_time_max = config.request_time_max;
  options.pipeline.failovers_per_second = config.failovers_per_second;
  options.pipeline.failover_wait_max =
      config.has_failover ? std::optional<absl::Duration>(config.failover_wait) : std::nullopt;
  options.pipeline.keepalive_interval = config.keepalive_interval;
  options.pipeline.unsent_bytes_max = static_cast<size_t>(config.unsent_bytes_max);
  options.pipeline.log = RequestLogOf(config.log_requests);
  options.pipeline.timeline_gap = config.timeline_gap;
  options.shortage = {.time_to_first_token = config.ttft_limit, .hold = config.shortage_hold};
  return options;
}

absl::StatusOr<std::vector<std::unique_ptr<Shard>>> StartShards(const RouterConfig& config,
                                                                const Shard::Shared& shared) {
  Shard::Options options = ShardOptions(config);  // without workers: the directory brings them
  if (options.port_sharing == PortSharing::kShared && options.port != 0) {
    RETURN_IF_ERROR(CheckPortIsFree(options.host, options.port));
  }
  std::vector<std::unique_ptr<Shard>> shards;
  for (int i = 0; i < config.num_shards; ++i) {
    const std::string instance = config.instance.empty() ? DefaultInstance(options.port) : config.instance;
    options.instance = config.num_shards == 1 ? instance : absl::StrCat(instance, "/", i);
    ASSIGN_OR_RETURN(std::unique_ptr<Shard> shard, Shard::Start(options, shared));
    options.port = shard->port();  // where it was 0, the next shards join this one
    shards.push_back(std::move(shard));
  }
  return shards;
}

std::vector<Discovery::Source> DiscoverySources(const RouterConfig& config) {
  std::vector<Discovery::Source> sources;
  if (!config.discovery_file.empty()) {
    sources.push_back({"file", [file = config.discovery_file] { return ReadWorkerFile(file); }});
  }
  const auto add_dns = [&](const std::string& name, WorkerRole role) {
    if (name.empty()) return;
    sources.push_back({absl::StrCat("dns of ", WorkerRoleName(role), " workers"),
                       [=] { return FindDnsWorkers(name, role, &ResolveBySystem); }});
  };
  add_dns(config.discovery_prefill_dns, WorkerRole::kPrefill);
  add_dns(config.discovery_decode_dns, WorkerRole::kDecode);
  return sources;
}

// Where the API server is, a pod is told by its environment. nullopt where no pool is found by it.
absl::StatusOr<std::optional<KubernetesDiscovery::Options>> KubernetesOptions(const RouterConfig& config) {
  KubernetesDiscovery::Options options;
  const auto add_pool = [&](const std::string& selector, WorkerRole role) {
    if (!selector.empty()) options.pools.push_back({role, selector});
  };
  add_pool(config.kubernetes_prefill_selector, WorkerRole::kPrefill);
  add_pool(config.kubernetes_decode_selector, WorkerRole::kDecode);
  if (options.pools.empty()) return std::nullopt;
  const char* const host = std::getenv("KUBERNETES_SERVICE_HOST");
  const char* const port = std::getenv("KUBERNETES_SERVICE_PORT");
  if (host == nullptr || port == nullptr) {
    return absl::InvalidArgumentError(
        "process.discovery.kubernetes: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, as they are in "
        "every pod");
  }
  options.api_host = host;
  if (!absl::SimpleAtoi(port, &options.api_port) || options.api_port < 1 || options.api_port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("process.discovery.kubernetes: KUBERNETES_SERVICE_PORT is \"", port, "\", must be 1 to 65535"));
  }
  options.service_account_folder = config.kubernetes_service_account_folder;
  options.name_space = config.kubernetes_namespace;
  options.port_name = config.kubernetes_port_name;
  options.list_interval = config.kubernetes_list_interval;
  return options;
}

// What can be checked without serving; a checkpoint that is not on this machine is not asked for.
absl::Status Validate(const RouterConfig& config) {
  RETURN_IF_ERROR(CheckRouterConfig(config));
  std::error_code error;
  if (!std::filesystem::exists(config.model_path, error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(absl::StrCat(config.model_path, "/tokenizer.json")));
  return MakeContext(config, tokenizer.get()).status();
}

absl::Status Run(const RouterConfig& config, base::ShutdownSignal& shutdown) {
  RETURN_IF_ERROR(CheckRouterConfig(config));
  ASSIGN_OR_RETURN(const WorkerLists configured,
                   CheckedWorkerLists(config.prefill_workers, config.decode_workers, "process."));
  ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                   Tokenizer::Load(absl::StrCat(config.model_path, "/tokenizer.json")));
  ASSIGN_OR_RETURN(const ModelContext context, MakeContext(config, tokenizer.get()));
  ASSIGN_OR_RETURN(const std::optional<KubernetesDiscovery::Options> kubernetes_options, KubernetesOptions(config));
  RouterMetrics metrics({.time_to_first_token = config.ttft_limit, .inter_token_latency = config.itl_limit});
  Readiness readiness;
  StatusBoard status_board;
  TimelineStore timelines(static_cast<size_t>(config.timelines));
  AbortRelay abort_relay;
  WorkerDirectory directory;
  directory.SubscribeFailures([&](int num_failing) { metrics.discovery_sources_failing.Set(num_failing); });
  directory.Report("configuration", configured);
  ASSIGN_OR_RETURN(const ClientKeys client_keys, LoadClientKeys(config.api_keys_file, config.api_keys_env));
  ASSIGN_OR_RETURN(const std::vector<std::string> admin_keys,
                   LoadAccessKeys(config.admin_keys_file, config.admin_keys_env));
  const AccessControl access = AccessControl::WithPriorities(client_keys, admin_keys);
  const CorsPolicy cors(config.cors_origins);
  std::unique_ptr<TlsCertificate> tls;
  if (!config.tls_certificate_file.empty()) {
    ASSIGN_OR_RETURN(tls, TlsCertificate::Load({config.tls_certificate_file, config.tls_key_file}, &base::RealClock()));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<base::PeerSecurity> peers,
                   base::PeerSecurity::Load(config.peers, base::RealClock()));
  PreparationThreads preparation;
  ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<Shard>> shards,
                   StartShards(config, {.context = &context,
                                        .metrics = &metrics,
                                        .readiness = &readiness,
                                        .status_board = &status_board,
                                        .timelines = &timelines,
                                        .abort_relay = &abort_relay,
                                        .directory = config.allows_worker_changes ? &directory : nullptr,
                                        .access = &access,
                                        .cors = &cors,
                                        .tls = tls.get(),
                                        .peers = peers.get(),
                                        .preparation = &preparation}));
  Discovery discovery(DiscoverySources(config), config.discovery_interval, &directory);
  std::optional<KubernetesDiscovery> kubernetes;
  if (kubernetes_options.has_value()) kubernetes.emplace(*kubernetes_options, &base::RealClock(), &directory);
  directory.Subscribe([&shards](const WorkerLists& lists) {
    for (const auto& shard : shards) {
      shard->SetWorkers({lists.prefill.begin(), lists.prefill.end()}, {lists.decode.begin(), lists.decode.end()});
    }
  });
  const int64_t file_limit = base::RaiseFileLimit();
  if (const int64_t connections_max = int64_t{config.connections_max} * config.num_shards;
      file_limit < connections_max) {
    LOG_WARNING("fewer open files than connections", {"files_max", file_limit}, {"connections_max", connections_max});
  }
  LOG_INFO("router listens", {"host", config.host}, {"port", shards.front()->port()}, {"shards", config.num_shards},
           {"model", context.served_model_name}, {"context_length", context.context_length},
           {"chat_format", context.prompt_format.name()}, {"prefill_workers", directory.lists().prefill.size()},
           {"decode_workers", directory.lists().decode.size()}, {"client_keys", client_keys.keys.size()},
           {"admin_keys", admin_keys.size()}, {"tls", tls != nullptr});
  shutdown.Started();
  shutdown.Wait();
  discovery.Stop();
  kubernetes.reset();
  LOG_INFO("router drains", {"notice", config.drain_notice}, {"grace", config.drain_grace});
  std::vector<std::thread> drains;
  shutdown.OnSecond([&] {
    for (const auto& shard : shards) shard->HurryDrain();
  });
  std::vector<absl::Status> ends(shards.size());
  for (size_t i = 0; i < shards.size(); ++i) {
    drains.emplace_back([&, i] { ends[i] = shards[i]->Drain({config.drain_notice, config.drain_grace}); });
  }
  for (std::thread& drain : drains) drain.join();
  shutdown.OnSecond(nullptr);
  directory.Subscribe(nullptr);
  LOG_INFO("router ends");
  for (const absl::Status& end : ends) RETURN_IF_ERROR(end);
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::router

int main(int argc, char** argv) {
  tandem::base::RouteGrpcLog();
  // Debian builds Abseil with the search for lock cycles on: it keeps a graph of all locks, and every lock pays for it.
  // Tests keep it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  tandem::base::ShutdownSignal shutdown;
  tandem::base::SetLogContext("role=router");
  tandem::router::RouterConfig config;
  tandem::base::ConfigSchema schema("router");
  tandem::router::DefineRouterConfig(schema, &config);
  const absl::StatusOr<tandem::base::ConfigArgs> args = tandem::base::LoadConfig(schema, argc, argv);
  if (args.ok() && args->should_exit && !args->is_validation) return 0;
  const absl::Status status = !args.ok()            ? args.status()
                              : args->is_validation ? tandem::router::Validate(config)
                                                    : tandem::router::Run(config, shutdown);
  if (!status.ok()) std::fprintf(stderr, "router: %s\n", std::string(status.message()).c_str());
  return tandem::base::ExitCode(status);
}
