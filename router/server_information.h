// What the router tells tools about itself, its model and its workers: SGLang's bodies, as far as they mean something
// here. From the router's own knowledge, no worker is asked. Tested by server_information_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "router/cluster_view.h"
#include "router/prepared_request.h"

namespace tandem::router {

// Of all shards.
struct RouterLoad {
  int64_t num_in_flight = 0;
  int64_t num_waiting = 0;
};

// GET /model_info
std::string ModelInfoBody(const ModelContext& context);

// GET /server_info. internal_states has one entry, of the whole cluster; avg_spec_accept_length is null for as long as
// no worker has drafted.
std::string ServerInfoBody(const ModelContext& context, const std::string& instance, const ClusterView& view,
                           const RouterLoad& load);

// GET /v1/loads: an entry for every worker, prefill first. query: of the URL. INVALID_ARGUMENT: a format other than
// json, or a dp_rank, of which there are none.
absl::StatusOr<std::string> LoadsBody(absl::string_view query, const ClusterView& view, const RouterLoad& load,
                                      absl::Time now);

}  // namespace tandem::router
