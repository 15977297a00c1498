#include "kvtransfer/ucx_am_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "kvtransfer/ucx_sockets.h"

namespace tandem::kvtransfer {
namespace {

// A connection is made and the first request answered in a few milliseconds, or the host is not there: TCP itself
// would try for minutes. Later silence is the control stream's to judge.
constexpr absl::Duration kAnswerLimit = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<UcxAmClient>> UcxAmClient::Connect(const LaneEnd& end, std::span<std::byte> target,
                                                                  uint64_t target_incarnation,
                                                                  const std::string& net_devices) {
  std::unique_ptr<UcxAmClient> client(new UcxAmClient(end.pool_bytes, target, target_incarnation));
  RETURN_IF_ERROR(client->Open(end, net_devices));
  return client;
}

UcxAmClient::UcxAmClient(uint64_t pool_bytes, std::span<std::byte> target, uint64_t target_incarnation)
    : pool_bytes_(pool_bytes), target_(target), target_incarnation_(target_incarnation) {}

absl::Status UcxAmClient::Open(const LaneEnd& end, const std::string& net_devices) {
  ASSIGN_OR_RETURN(context_, MakeUcpContext(UcxTransport::kTcp, net_devices));
  ASSIGN_OR_RETURN(worker_, MakeUcpWorker(context_.get()));
  ucp_am_handler_param_t handler = {};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kAmReply;
  handler.cb = &UcxAmClient::OnReply;
  handler.arg = this;
  RETURN_IF_ERROR(FromUcx(ucp_worker_set_am_recv_handler(worker_.get(), &handler), "ucx_am handler"));

  ASSIGN_OR_RETURN(const base::HostPort source, base::ParseHostPort(end.worker_address));
  ASSIGN_OR_RETURN(const SocketAddress address, Resolve(source));
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = address.ForUcx();
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxAmClient::OnEndpointError, this};
  RETURN_IF_ERROR(FromUcx(ucp_ep_create(worker_.get(), &params, &endpoint_),
                          absl::StrCat("ucx_am: cannot reach the source at ", end.worker_address)));
  return absl::OkStatus();
}

// UCX may call back until its worker is gone: before the members that its callbacks touch.
UcxAmClient::~UcxAmClient() {
  CloseEndpoint();
  worker_.reset();
}

void UcxAmClient::CloseEndpoint() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &param);
  if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
}

void UcxAmClient::Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) {
  auto fetch = std::make_shared<Fetch>();
  fetch->epoch = epoch;
  fetch->done = std::move(done);
  live_.emplace(fetch.get(), fetch);
  absl::Status status = lane_status_;
  status.Update(ValidateRuns(runs, pool_bytes_, target_.size()));
  fetch->cutter = RunCutter(std::move(runs));
  if (!status.ok() || fetch->cutter.IsDone()) return End(fetch, std::move(status));
  unsent_.push_back(std::move(fetch));
}

void UcxAmClient::Cancel(uint64_t epoch) {
  std::vector<std::shared_ptr<Fetch>> cancelled;
  for (const auto& [key, fetch] : live_) {
    if (fetch->epoch == epoch) cancelled.push_back(fetch);
  }
  for (const auto& fetch : cancelled) End(fetch, absl::CancelledError(absl::StrCat("epoch ", epoch, " is cancelled")));
}

void UcxAmClient::FailAll(const absl::Status& status) {
  while (!live_.empty()) End(std::shared_ptr<Fetch>(live_.begin()->second), status);
  CallEnded();
}

void UcxAmClient::Die(const absl::Status& cause) {
  lane_status_.Update(absl::UnavailableError(absl::StrCat("ucx_am: ", cause.message())));
}

bool UcxAmClient::Progress() {
  bool has_moved = false;
  while (SendNextPiece()) has_moved = true;
  if (ucp_worker_progress(worker_.get()) > 0) has_moved = true;
  if (TimeToAnswer() == absl::ZeroDuration()) {
    Die(absl::UnavailableError(absl::StrCat("no answer from the source in ", absl::FormatDuration(kAnswerLimit))));
  }
  if (!lane_status_.ok()) {
    CloseEndpoint();
    FailAll(lane_status_);
    unanswered_.clear();
  }
  if (!ended_.empty()) has_moved = true;
  CallEnded();
  return has_moved;
}

absl::Duration UcxAmClient::TimeToAnswer() const {
  if (has_answered_ || unanswered_.empty()) return absl::InfiniteDuration();
  return std::max(absl::ZeroDuration(), answer_deadline_ - base::RealClock().Now());
}

bool UcxAmClient::SendNextPiece() {
  while (!unsent_.empty() && (unsent_.front()->has_ended || unsent_.front()->cutter.IsDone())) unsent_.pop_front();
  if (unsent_.empty() || unanswered_.size() >= kAmWindowPieces || !lane_status_.ok()) return false;
  const std::shared_ptr<Fetch>& fetch = unsent_.front();
  Piece piece = {fetch, fetch->cutter.Cut(kAmPieceBytesMax, kAmPieceRunsMax)};
  auto message = std::make_unique<Message>();
  message->header = {target_incarnation_, fetch->epoch, next_request_++, piece.runs.size()};
  for (const ByteRun& run : piece.runs) message->runs.push_back({run.source_offset, run.num_bytes});
  ++fetch->num_unanswered;
  if (!has_answered_ && unanswered_.empty()) answer_deadline_ = base::RealClock().Now() + kAnswerLimit;
  unanswered_.emplace(message->header.request, std::move(piece));
  Send(std::move(message));
  return true;
}

void UcxAmClient::Send(std::unique_ptr<Message> message) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  param.cb.send = &UcxAmClient::OnSent;
  Message* const sent = message.release();  // given back by OnSent
  sent->client = this;
  param.user_data = sent;
  const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint_, kAmRequest, &sent->header, sizeof(sent->header),
                                                   sent->runs.data(), sent->runs.size() * sizeof(AmRun), &param);
  if (!UCS_PTR_IS_PTR(request)) OnSent(nullptr, UCS_PTR_STATUS(request), sent);
}

void UcxAmClient::OnSent(void* request, ucs_status_t status, void* message) {
  const std::unique_ptr<Message> sent(static_cast<Message*>(message));
  if (request != nullptr) ucp_request_free(request);
  if (status != UCS_OK) OnEndpointError(sent->client, nullptr, status);
}

void UcxAmClient::OnEndpointError(void* self, ucp_ep_h, ucs_status_t status) {
  auto& client = *static_cast<UcxAmClient*>(self);
  client.Die(absl::UnavailableError(absl::StrCat("connection to the source lost: ", ucs_status_string(status))));
}

ucs_status_t UcxAmClient::OnReply(void* self, const void* header, size_t header_bytes, void* data, size_t num_bytes,
                                  const ucp_am_recv_param_t* param) {
  auto& client = *static_cast<UcxAmClient*>(self);
  AmReply reply;
  if (header_bytes != sizeof(reply) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    client.Die(absl::UnavailableError("the source speaks another protocol"));
    return UCS_OK;
  }
  std::memcpy(&reply, header, sizeof(reply));
  client.Take(reply, {static_cast<const std::byte*>(data), num_bytes});
  return UCS_OK;
}

void UcxAmClient::Take(const AmReply& reply, std::span<const std::byte> bytes) {
  const auto found = unanswered_.find(reply.request);
  if (found == unanswered_.end() || reply.target_incarnation != target_incarnation_ ||
      reply.epoch != found->second.fetch->epoch) {
    return Die(absl::UnavailableError(
        absl::StrCat("a reply to nothing that was asked: epoch ", reply.epoch, " request ", reply.request)));
  }
  has_answered_ = true;
  const Piece piece = std::move(found->second);
  unanswered_.erase(found);
  --piece.fetch->num_unanswered;
  if (piece.fetch->has_ended) return;  // drained
  if (reply.code != 0) {
    return End(piece.fetch, absl::Status(static_cast<absl::StatusCode>(reply.code),
                                         std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  }
  if (bytes.size() != TotalBytes(piece.runs)) {
    Die(absl::UnavailableError(
        absl::StrCat("a reply of ", bytes.size(), " bytes to a request of ", TotalBytes(piece.runs))));
    return End(piece.fetch, lane_status_);
  }
  for (const ByteRun& run : piece.runs) {
    std::memcpy(target_.data() + run.target_offset, bytes.data(), run.num_bytes);
    bytes = bytes.subspan(run.num_bytes);
  }
  if (piece.fetch->cutter.IsDone() && piece.fetch->num_unanswered == 0) End(piece.fetch, absl::OkStatus());
}

void UcxAmClient::End(const std::shared_ptr<Fetch>& fetch, absl::Status status) {
  fetch->has_ended = true;
  ended_.emplace_back(fetch, std::move(status));
  live_.erase(fetch.get());
}

// Outside of UCX's callbacks, so that `done` may take its time.
void UcxAmClient::CallEnded() {
  for (auto& [fetch, status] : std::exchange(ended_, {})) {
    fetch->done(std::move(status));
    fetch->done = nullptr;
  }
}

}  // namespace tandem::kvtransfer
