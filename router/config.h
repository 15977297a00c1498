// The router's settings: docs/configuration.md is made from DefineRouterConfig(). Tested by config_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/config.h"
#include "base/peer_security.h"

namespace tandem::router {

struct RouterConfig {
  // cluster:
  std::string model_path;
  int64_t context_length = 0;  // 0 = the checkpoint's
  std::string of_workers;      // their settings: what is written there changes nothing here
  bool allows_auto_truncate = false;

  // process:
  std::string served_model_name;  // "" = the last part of model_path
  std::string chat_format = "auto";
  std::string chat_tools_preamble;  // path of a file; "" = the checkpoint's own text
  std::string instance;             // "" = host name and port
  std::string host = "127.0.0.1";
  int port = 8000;
  int num_shards = 1;
  std::vector<std::string> prefill_workers;
  std::vector<std::string> decode_workers;
  std::string discovery_file;         // "" = none
  std::string discovery_prefill_dns;  // host:port; "" = none
  std::string discovery_decode_dns;
  absl::Duration discovery_interval = absl::Seconds(1);
  std::string kubernetes_prefill_selector;  // "" = none
  std::string kubernetes_decode_selector;
  std::string kubernetes_namespace;  // "" = the pod's own
  std::string kubernetes_port_name = "rpc";
  absl::Duration kubernetes_list_interval = absl::Seconds(30);
  std::string kubernetes_service_account_folder = "/var/run/secrets/kubernetes.io/serviceaccount";
  bool allows_worker_changes = false;
  base::PeerSecurityConfig peers;
  absl::Duration heartbeat_interval = absl::Milliseconds(250);
  absl::Duration peer_silence_max = absl::Milliseconds(750);
  int64_t credit_bytes = int64_t{16} << 10;
  std::string policy = "prefix";
  int requests_max = 4096;
  int queued_max = 1024;
  absl::Duration queue_time_max = absl::Minutes(1);
  int choices_max = 128;
  absl::Duration request_time_max = absl::Hours(4);
  bool has_failover = true;
  absl::Duration failover_wait = absl::Seconds(10);
  int failovers_per_second = 200;
  absl::Duration drain_notice = absl::Seconds(1);
  absl::Duration drain_grace = absl::Seconds(30);
  absl::Duration keepalive_interval = absl::Seconds(30);
  int64_t unsent_bytes_max = int64_t{256} << 10;
  int64_t body_bytes_max = int64_t{64} << 20;
  int connections_max = 16384;
  absl::Duration idle_max = absl::Seconds(75);
  absl::Duration header_time_max = absl::Seconds(10);
  absl::Duration body_stall_max = absl::Seconds(30);
  absl::Duration write_stall_max = absl::Seconds(30);
  std::string api_keys_file;  // "" = none
  std::string api_keys_env;
  std::string admin_keys_file;
  std::string admin_keys_env;
  std::vector<std::string> cors_origins;
  std::string tls_certificate_file;  // "" = plain HTTP
  std::string tls_key_file;
  std::string log_requests = "summary";
  int timelines = 256;
  absl::Duration timeline_gap = absl::Seconds(1);
  absl::Duration ttft_limit = absl::Seconds(5);
  absl::Duration itl_limit = absl::Milliseconds(100);
  absl::Duration shortage_hold = absl::Seconds(30);
};

// The schema writes into *config, which outlives it.
void DefineRouterConfig(base::ConfigSchema& schema, RouterConfig* config);

// What a schema cannot say: model_path is given, worker addresses are addresses, none twice.
absl::Status CheckRouterConfig(const RouterConfig& config);

}  // namespace tandem::router
