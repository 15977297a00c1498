// One small HTTP/1.1 server for operators, the same on all three services: /health, /readyz, /metrics, /statusz.
// Own thread; handlers are called on it and must not block on the engine. Tested by admin_http_test.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace tandem::base {

struct AdminReply {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};
using AdminHandlers = absl::flat_hash_map<std::string, std::function<AdminReply()>>;  // by path

class AdminHttpServer final {
 public:
  // UNAVAILABLE where the address is in use, naming it. port 0 takes a free one.
  static absl::StatusOr<std::unique_ptr<AdminHttpServer>> Start(const std::string& host, int port,
                                                                AdminHandlers handlers);
  ~AdminHttpServer();  // stops and joins
  int port() const;

 private:
  class Server;
  explicit AdminHttpServer(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace tandem::base
