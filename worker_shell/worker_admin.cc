#include "worker_shell/worker_admin.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::worker_shell {

base::AdminHandlers WorkerAdminHandlers(std::string title, std::function<std::string()> links,
                                        const EngineStatus& status, const base::Metrics& metrics) {
  base::AdminHandlers handlers;
  handlers["/health"] = [] { return base::AdminReply{.body = "ok\n"}; };
  handlers["/readyz"] = [&status] {
    if (status.is_draining()) return base::AdminReply{.status = 503, .body = "draining\n"};
    return base::AdminReply{.body = "ok\n"};
  };
  handlers["/metrics"] = [&metrics] {
    return base::AdminReply{.body = metrics.Expose(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  };
  handlers["/statusz"] = [title = std::move(title), links = std::move(links), &status] {
    const proto::Load load = status.Vitals(absl::ZeroDuration()).load;
    return base::AdminReply{
        .body = absl::StrCat(title, "\n", links(), "requests that hold pages: ", load.running_sequences(),
                             "\nrequests in line: ", load.waiting_requests(), "\nkv pages free: ", load.kv_pages_free(),
                             " of ", load.kv_pages_total(), "\nengine steps: ", load.engine_steps(), "\n\n",
                             status.description())};
  };
  return handlers;
}

}  // namespace tandem::worker_shell
