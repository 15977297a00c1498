#include "kvtransfer/ucx_shm_lane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvtransfer/copy_lane.h"
#include "kvtransfer/ucx_handles.h"

namespace tandem::kvtransfer {
namespace {

// A read is a copy by this thread, so it ends; the limits only bound what cannot happen.
constexpr absl::Duration kReadLimit = absl::Seconds(2);
constexpr absl::Duration kCloseLimit = absl::Milliseconds(500);

class UcxSegment final : public PieceSource {
 public:
  static absl::StatusOr<std::unique_ptr<PieceSource>> Map(const LaneEnd& end) {
    ASSIGN_OR_RETURN(const std::string address, AddressOfSameVersion(end.worker_address));
    std::unique_ptr<UcxSegment> segment(new UcxSegment(end));
    ASSIGN_OR_RETURN(segment->context_, MakeUcpContext(UcxTransport::kSharedMemory, ""));
    ASSIGN_OR_RETURN(segment->worker_, MakeUcpWorker(segment->context_.get()));
    ucp_ep_params_t params = {};
    // No error mode: UCX offers no shared memory with one.
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    RETURN_IF_ERROR(Explain(ucp_ep_create(segment->worker_.get(), &params, &segment->endpoint_)));
    ucp_rkey_h rkey = nullptr;
    RETURN_IF_ERROR(Explain(ucp_ep_rkey_unpack(segment->endpoint_, end.remote_key.data(), &rkey)));
    segment->rkey_.reset(rkey);
    return segment;
  }

  ~UcxSegment() override {
    rkey_.reset();
    if (endpoint_ == nullptr) return;
    // Where the source is gone the flush cannot end; destroying the worker then takes the endpoint with it.
    ucp_request_param_t param = {};
    (void)AwaitRequest(worker_.get(), ucp_ep_close_nbx(endpoint_, &param), kCloseLimit, "ucx_shm close");
  }

  uint64_t num_bytes() const override { return pool_bytes_; }
  absl::Status Admit(uint64_t, std::span<const ByteRun>) override { return absl::OkStatus(); }

  absl::Status Copy(uint64_t source_offset, std::span<std::byte> target) override {
    ucp_request_param_t param = {};
    const ucs_status_ptr_t request =
        ucp_get_nbx(endpoint_, target.data(), target.size(), pool_address_ + source_offset, rkey_.get(), &param);
    const absl::Status status = AwaitRequest(worker_.get(), request, kReadLimit, "ucx_shm read");
    return status.ok() ? status : absl::UnavailableError(status.message());
  }

 private:
  explicit UcxSegment(const LaneEnd& end) : pool_address_(end.pool_address), pool_bytes_(end.pool_bytes) {}

  static absl::Status Explain(ucs_status_t status) {
    if (status == UCS_OK) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("ucx_shm: cannot map the source's pool (", ucs_status_string(status),
                                               "): not the same host and PID namespace, or the source is gone"));
  }

  const uint64_t pool_address_;
  const uint64_t pool_bytes_;
  UcpContext context_;
  UcpWorker worker_;
  ucp_ep_h endpoint_ = nullptr;
  UcpRkey rkey_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FetchLane>> OpenUcxShmLane(const LaneEnd& end, std::span<std::byte> target) {
  if (end.kind != kUcxShmKind || end.worker_address.empty() || end.remote_key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("not an end of a ucx_shm lane: kind ", end.kind, ", address of ",
                                                   end.worker_address.size(), " bytes, key of ", end.remote_key.size(),
                                                   " bytes"));
  }
  return CopyLane::Open(
      kUcxShmKind, [end] { return UcxSegment::Map(end); }, target);
}

}  // namespace tandem::kvtransfer
