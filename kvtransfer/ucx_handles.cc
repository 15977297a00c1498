#include "kvtransfer/ucx_handles.h"

#include <poll.h>
#include <ucs/config/global_opts.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace tandem::kvtransfer {
namespace {

using Setting = std::pair<const char*, std::string>;

// Why each: KEEPALIVE_INTERVAL: liveness is the control stream's business, with tighter bounds. ALLOC_PRIO: the pool
// lies in a segment that others can map, or nowhere. *_SEG_SIZE: a piece and its headers travel as one fragment;
// the default of 8 KiB costs two thirds of the rate. RNDV_THRESH: rendezvous over TCP is emulated and slow.
// CONN_NB: a connection to a host that does not answer may not hold the lane's thread.
std::vector<Setting> SettingsOf(UcxTransport transport, const std::string& net_devices) {
  if (transport == UcxTransport::kSharedMemory) {
    return {{"TLS", "posix"}, {"KEEPALIVE_INTERVAL", "inf"}, {"ALLOC_PRIO", "md:posix"}};
  }
  return {{"TLS", "tcp"},   {"KEEPALIVE_INTERVAL", "inf"}, {"NET_DEVICES", net_devices}, {"RNDV_THRESH", "inf"},
          {"CONN_NB", "y"}, {"TX_SEG_SIZE", "264K"},       {"RX_SEG_SIZE", "264K"}};
}

// What UCX has to say comes back as statuses. Its own lines, on stdout and in its own format, are for whoever has asked
// for them by a log level.
void SilenceUcx() {
  char level[32] = "";
  if (ucs_global_opts_get_value("LOG_LEVEL", level, sizeof(level)) == UCS_OK && std::string_view(level) == "WARN") {
    ucs_global_opts_set_value("LOG_LEVEL", "FATAL");
  }
}

constexpr char kVersionEnd = ';';

std::string VersionPrefix() {
  return absl::StrCat("ucx ", ucp_get_version_string(), absl::string_view(&kVersionEnd, 1));
}

}  // namespace

absl::Status FromUcx(ucs_status_t status, std::string_view what) {
  const std::string message = absl::StrCat(std::string(what), ": ", ucs_status_string(status));
  switch (status) {
    case UCS_OK:
      return absl::OkStatus();
    case UCS_ERR_CANCELED:
      return absl::CancelledError(message);
    case UCS_ERR_NO_MEMORY:
      return absl::ResourceExhaustedError(message);
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_REJECTED:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_SHMEM_SEGMENT:
    case UCS_ERR_NO_DEVICE:
      return absl::UnavailableError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<UcpContext> MakeUcpContext(UcxTransport transport, const std::string& net_devices) {
  static std::once_flag is_silent;
  std::call_once(is_silent, SilenceUcx);
  ucp_config_t* config = nullptr;
  RETURN_IF_ERROR(FromUcx(ucp_config_read(nullptr, nullptr, &config), "ucx configuration"));
  const absl::Cleanup release = [config] { ucp_config_release(config); };
  for (const auto& [name, value] : SettingsOf(transport, net_devices)) {
    RETURN_IF_ERROR(FromUcx(ucp_config_modify(config, name, value.c_str()), absl::StrCat("ucx setting ", name)));
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_WAKEUP | (transport == UcxTransport::kTcp ? UCP_FEATURE_AM : UCP_FEATURE_RMA);
  ucp_context_h context = nullptr;
  RETURN_IF_ERROR(FromUcx(ucp_init(&params, config, &context), transport == UcxTransport::kTcp
                                                                   ? absl::StrCat("ucx over tcp, devices ", net_devices)
                                                                   : std::string("ucx over posix shared memory")));
  return UcpContext(context);
}

absl::StatusOr<UcpWorker> MakeUcpWorker(ucp_context_h context) {
  ucp_worker_params_t params = {};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  RETURN_IF_ERROR(FromUcx(ucp_worker_create(context, &params, &worker), "ucx worker"));
  return UcpWorker(worker);
}

absl::StatusOr<std::string> WorkerAddress(ucp_worker_h worker) {
  ucp_address_t* address = nullptr;
  size_t num_bytes = 0;
  RETURN_IF_ERROR(FromUcx(ucp_worker_get_address(worker, &address, &num_bytes), "ucx worker address"));
  std::string told = absl::StrCat(VersionPrefix(), absl::string_view(reinterpret_cast<char*>(address), num_bytes));
  ucp_worker_release_address(worker, address);
  return told;
}

absl::StatusOr<std::string> AddressOfSameVersion(const std::string& worker_address) {
  const std::string prefix = VersionPrefix();
  if (absl::StartsWith(worker_address, prefix)) return worker_address.substr(prefix.size());
  const size_t end = std::min(worker_address.find(kVersionEnd), size_t{24});  // of what may not be an address at all
  return absl::UnavailableError(absl::StrCat("the source's UCX is \"", absl::CEscape(worker_address.substr(0, end)),
                                             "\", ours is \"", prefix.substr(0, prefix.size() - 1), "\""));
}

absl::Status AwaitRequest(ucp_worker_h worker, ucs_status_ptr_t request, absl::Duration limit, std::string_view what) {
  if (UCS_PTR_IS_ERR(request)) return FromUcx(UCS_PTR_STATUS(request), what);
  if (request == nullptr) return absl::OkStatus();
  const absl::Duration deadline = base::RealClock().Now() + limit;
  ucs_status_t status = UCS_INPROGRESS;
  while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
    if (ucp_worker_progress(worker) > 0) continue;
    if (base::RealClock().Now() > deadline) {
      ucp_request_cancel(worker, request);
      ucp_request_free(request);
      return absl::DeadlineExceededError(
          absl::StrCat(std::string(what), ": not done in ", absl::FormatDuration(limit)));
    }
  }
  ucp_request_free(request);
  return FromUcx(status, what);
}

absl::Status WaitForUcx(Waker& waker, ucp_worker_h first, ucp_worker_h second, absl::Duration limit) {
  std::array<pollfd, 3> fds = {{{waker.fd(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}}};
  const std::array<ucp_worker_h, 2> workers = {first, second};
  for (size_t i = 0; i < workers.size(); ++i) {
    if (workers[i] == nullptr) continue;
    RETURN_IF_ERROR(FromUcx(ucp_worker_get_efd(workers[i], &fds[1 + i].fd), "ucx event descriptor"));
    const ucs_status_t armed = ucp_worker_arm(workers[i]);
    if (armed == UCS_ERR_BUSY) return absl::OkStatus();  // something came in: progress first
    RETURN_IF_ERROR(FromUcx(armed, "ucx arm"));
  }
  // Rounded up: a wait that ends early would spin.
  const int limit_ms = limit == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(limit)) + 1;
  if (poll(fds.data(), fds.size(), limit_ms) < 0 && errno != EINTR) {
    return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
  }
  waker.Clear();
  return absl::OkStatus();
}

}  // namespace tandem::kvtransfer
