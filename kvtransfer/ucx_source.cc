#include "kvtransfer/ucx_source.h"

#include <sys/mman.h>
#include <sys/statvfs.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvtransfer/own_address.h"
#include "kvtransfer/socket_address.h"
#include "kvtransfer/ucx_am_server.h"
#include "kvtransfer/ucx_handles.h"

namespace tandem::kvtransfer {
namespace {

constexpr char kShmFolder[] = "/dev/shm";

// UCX would fail too, but in many words and for a reason that it does not know.
absl::Status CheckRoomInShm(uint64_t pool_bytes) {
  struct statvfs room = {};
  if (statvfs(kShmFolder, &room) != 0) {
    return absl::UnavailableError(absl::StrCat(kShmFolder, ": ", std::strerror(errno), "; ucx_shm needs it"));
  }
  const uint64_t free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  if (free_bytes >= pool_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("kv pool of ", pool_bytes, " bytes does not fit in ", kShmFolder,
                                                   ": ", free_bytes,
                                                   " bytes are free; enlarge it or turn ucx_shm off"));
}

// Private memory, for a pool that is not shared.
struct Unmapper {
  size_t num_bytes = 0;
  void operator()(std::byte* memory) const { munmap(memory, num_bytes); }
};
using PrivateMemory = std::unique_ptr<std::byte[], Unmapper>;

absl::StatusOr<PrivateMemory> MapPrivate(uint64_t num_bytes) {
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("kv pool of ", num_bytes, " bytes: ", std::strerror(errno)));
  }
  return PrivateMemory(static_cast<std::byte*>(memory), Unmapper{num_bytes});
}

}  // namespace

class UcxSource::Engine final {
 public:
  explicit Engine(UcxSourceOptions options) : options_(std::move(options)) {}
  ~Engine() {
    Stop();
    if (pool_handle_ != nullptr) ucp_mem_unmap(shm_context_.get(), pool_handle_);
  }

  absl::Status Start() {
    absl::Status opened;
    absl::Notification is_open;
    thread_ = std::thread([this, &opened, &is_open] {
      opened = Open();
      const bool is_ok = opened.ok();
      is_open.Notify();
      if (is_ok) Run();
      Close();
    });
    is_open.WaitForNotification();
    return opened;
  }

  void Stop() {
    is_stopping_ = true;
    waker_.Wake();
    if (thread_.joinable()) thread_.join();
  }

  std::span<std::byte> pool() const { return pool_; }
  const std::vector<LaneEnd>& lane_ends() const { return lane_ends_; }

 private:
  absl::Status Open() {
    if (options_.pool_bytes == 0) return absl::InvalidArgumentError("a kv pool of 0 bytes");
    RETURN_IF_ERROR(options_.offers_shm ? OpenShm() : OpenPrivate());
    return options_.offers_am ? OpenAm() : absl::OkStatus();
  }

  absl::Status OpenPrivate() {
    ASSIGN_OR_RETURN(private_memory_, MapPrivate(options_.pool_bytes));
    pool_ = {private_memory_.get(), options_.pool_bytes};
    return absl::OkStatus();
  }

  absl::Status OpenShm() {
    RETURN_IF_ERROR(CheckRoomInShm(options_.pool_bytes));
    ASSIGN_OR_RETURN(shm_context_, MakeUcpContext(UcxTransport::kSharedMemory, ""));
    ASSIGN_OR_RETURN(shm_worker_, MakeUcpWorker(shm_context_.get()));
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = options_.pool_bytes;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    RETURN_IF_ERROR(FromUcx(ucp_mem_map(shm_context_.get(), &params, &pool_handle_),
                            absl::StrCat("kv pool of ", options_.pool_bytes, " bytes in shared memory")));
    ucp_mem_attr_t attributes = {};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    RETURN_IF_ERROR(FromUcx(ucp_mem_query(pool_handle_, &attributes), "kv pool"));
    pool_ = {static_cast<std::byte*>(attributes.address), options_.pool_bytes};
    std::memset(pool_.data(), 0, pool_.size());  // UCX has filled it to see that it is there

    void* key = nullptr;
    size_t key_bytes = 0;
    RETURN_IF_ERROR(FromUcx(ucp_rkey_pack(shm_context_.get(), pool_handle_, &key, &key_bytes), "key of the kv pool"));
    LaneEnd end = EndOf(kUcxShmKind);
    end.remote_key.assign(static_cast<const char*>(key), key_bytes);
    ucp_rkey_buffer_release(key);
    ASSIGN_OR_RETURN(end.worker_address, WorkerAddress(shm_worker_.get()));
    lane_ends_.push_back(std::move(end));
    return absl::OkStatus();
  }

  absl::Status OpenAm() {
    std::string listen_host = options_.am_listen_host;
    if (listen_host.empty()) {
      ASSIGN_OR_RETURN(listen_host, RoutableHost(options_.net_devices));
    }
    // UCX listens on each device that it may use, besides the listener; connections use that of the listener alone.
    std::string net_devices = options_.net_devices;
    if (const std::string device = DeviceOf(listen_host); net_devices == "all" && !device.empty()) net_devices = device;
    ASSIGN_OR_RETURN(am_context_, MakeUcpContext(UcxTransport::kTcp, net_devices));
    ASSIGN_OR_RETURN(am_worker_, MakeUcpWorker(am_context_.get()));
    ASSIGN_OR_RETURN(am_server_, UcxAmServer::Create(am_worker_.get(), listen_host, options_.am_port, pool_,
                                                     options_.is_epoch_readable));
    std::string told_host = options_.am_advertised_host.empty() ? listen_host : options_.am_advertised_host;
    if (base::IsWildcard(told_host)) {
      ASSIGN_OR_RETURN(told_host, RoutableHost(options_.net_devices));
    }
    LaneEnd end = EndOf(kUcxAmKind);
    end.worker_address = base::HostPort{told_host, am_server_->port()}.ToString();
    lane_ends_.push_back(std::move(end));
    return absl::OkStatus();
  }

  LaneEnd EndOf(const char* kind) const {
    return {.kind = kind,
            .worker_address = "",
            .pool_address = reinterpret_cast<uint64_t>(pool_.data()),
            .pool_bytes = pool_.size(),
            .remote_key = ""};
  }

  void Run() {
    while (!is_stopping_) {
      unsigned num_events = 0;
      if (shm_worker_ != nullptr) num_events += ucp_worker_progress(shm_worker_.get());
      if (am_worker_ != nullptr) {
        num_events += ucp_worker_progress(am_worker_.get());
        am_server_->Serve();
      }
      if (num_events > 0) continue;
      if (const absl::Status status = WaitForUcx(waker_, shm_worker_.get(), am_worker_.get(), absl::InfiniteDuration());
          !status.ok()) {
        LOG_ERROR("ucx source stopped", {"status", status});
        return;
      }
    }
  }

  // The pool and its context stay: the engine may still write, and decode workers may still have it mapped.
  void Close() {
    shm_worker_.reset();
    if (am_server_ == nullptr) {
      am_worker_.reset();
      am_context_.reset();
      return;
    }
    am_server_->Shutdown();
    Abandon(std::move(am_context_), std::move(am_worker_), std::move(am_server_));
  }

  // What listens is never destroyed (UcxAmServer::Shutdown says why). It is kept reachable, so that leak checkers see
  // what was meant.
  static void Abandon(UcpContext context, UcpWorker worker, std::unique_ptr<UcxAmServer> server) {
    struct Abandoned {
      UcpContext context;
      UcpWorker worker;
      std::unique_ptr<UcxAmServer> server;
    };
    static absl::Mutex mutex(absl::kConstInit);
    static auto* const abandoned = new std::vector<Abandoned>();
    absl::MutexLock lock(&mutex);
    abandoned->push_back({std::move(context), std::move(worker), std::move(server)});
  }

  const UcxSourceOptions options_;
  PrivateMemory private_memory_;
  UcpContext shm_context_;
  UcpWorker shm_worker_;
  ucp_mem_h pool_handle_ = nullptr;
  UcpContext am_context_;
  UcpWorker am_worker_;
  std::unique_ptr<UcxAmServer> am_server_;
  std::span<std::byte> pool_;
  std::vector<LaneEnd> lane_ends_;
  Waker waker_;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<UcxSource>> UcxSource::Start(UcxSourceOptions options) {
  auto engine = std::make_unique<Engine>(std::move(options));
  RETURN_IF_ERROR(engine->Start());
  return std::unique_ptr<UcxSource>(new UcxSource(std::move(engine)));
}

UcxSource::UcxSource(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
UcxSource::~UcxSource() = default;
std::span<std::byte> UcxSource::pool() const { return engine_->pool(); }
const std::vector<LaneEnd>& UcxSource::lane_ends() const { return engine_->lane_ends(); }
void UcxSource::Stop() { engine_->Stop(); }

}  // namespace tandem::kvtransfer
