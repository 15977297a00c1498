// Finds workers by the Kubernetes API: lists and watches the EndpointSlices of each pool, and tells the directory.
//
// EndpointSlices, not pods: they say which endpoints are ready and which terminate, they bring the port by its name, a
// hundred workers are one small object, and the right to read them shows no pod's environment. What to ask when, and
// what the answers mean, is endpoint_watch.h's; here are the connections, the service account's files (read anew for
// each request: the kubelet replaces the token) and the log. One thread, whose waits all end. A list beyond
// kListBytesMax or an event beyond kEventBytesMax is an error, as is all else: the directory keeps what it has.
// Tested by tests/e2e/kubernetes_test.py against an API server that fails in every way it knows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "router/discovery/worker_directory.h"
#include "router/worker_channel.h"

namespace tandem::router {

class KubernetesDiscovery final {
 public:
  static constexpr size_t kListBytesMax = size_t{8} << 20;
  static constexpr size_t kEventBytesMax = size_t{2} << 20;  // more than etcd takes of one object

  struct Pool {
    WorkerRole role = WorkerRole::kPrefill;
    std::string selector;  // of labels of its EndpointSlices, as `kubectl get -l` takes it
  };
  struct Options {
    std::string api_host;  // KUBERNETES_SERVICE_HOST
    int api_port = 443;
    std::string service_account_folder;  // with token, ca.crt, namespace
    std::string name_space;              // "" = the one that the folder names
    std::string port_name;
    absl::Duration list_interval;
    std::vector<Pool> pools;
  };

  // Begins at once. The clock and the directory outlive it.
  KubernetesDiscovery(Options options, const base::Clock* clock, WorkerDirectory* directory);
  ~KubernetesDiscovery();  // ends what is under way; the directory is told nothing afterwards
  KubernetesDiscovery(const KubernetesDiscovery&) = delete;
  KubernetesDiscovery& operator=(const KubernetesDiscovery&) = delete;

 private:
  class Loop;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace tandem::router
