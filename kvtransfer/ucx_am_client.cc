#include "kvtransfer/ucx_am_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "kvtransfer/socket_address.h"

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
    : target_(target),
      target_incarnation_(target_incarnation),
      window_(
          {.num_bytes_max = kAmPieceBytesMax, .num_runs_max = kAmPieceRunsMax, .num_unanswered_max = kAmWindowPieces},
          pool_bytes, target.size()) {}

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
  params.sockaddr = {address.get(), address.num_bytes};
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
  window_.Add(epoch, std::move(runs), std::move(done));
}

void UcxAmClient::FailAll(const absl::Status& status) {
  window_.FailAll(status);
  window_.CallDone();
}

void UcxAmClient::Die(const absl::Status& cause) {
  window_.Break(absl::UnavailableError(absl::StrCat("ucx_am: ", cause.message())));
}

bool UcxAmClient::Progress() {
  bool has_moved = false;
  while (SendNextPiece()) has_moved = true;
  if (ucp_worker_progress(worker_.get()) > 0) has_moved = true;
  if (TimeToAnswer() == absl::ZeroDuration()) {
    Die(absl::UnavailableError(absl::StrCat("no answer from the source in ", absl::FormatDuration(kAnswerLimit))));
  }
  if (!window_.status().ok()) CloseEndpoint();
  // Outside of UCX's callbacks, so that `done` may take its time.
  if (window_.CallDone()) has_moved = true;
  return has_moved;
}

void UcxAmClient::Sleep(Waker& waker) {
  // Nobody's events count once the lane is dead.
  const absl::Status slept =
      WaitForUcx(waker, window_.status().ok() ? worker_.get() : nullptr, nullptr, TimeToAnswer());
  if (!slept.ok()) Die(slept);
}

absl::Duration UcxAmClient::TimeToAnswer() const {
  if (has_answered_ || !window_.HasUnanswered()) return absl::InfiniteDuration();
  return std::max(absl::ZeroDuration(), answer_deadline_ - base::RealClock().Now());
}

bool UcxAmClient::SendNextPiece() {
  if (!window_.status().ok()) return false;
  const bool is_first = !has_answered_ && !window_.HasUnanswered();
  const Piece* const piece = window_.AskNext();
  if (piece == nullptr) return false;
  if (is_first) answer_deadline_ = base::RealClock().Now() + kAnswerLimit;
  auto message = std::make_unique<Message>();
  message->header = {target_incarnation_, piece->epoch, piece->request, piece->runs.size()};
  for (const ByteRun& run : piece->runs) message->runs.push_back({run.source_offset, run.num_bytes});
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
  const Piece* const piece = window_.Find(reply.request);
  if (piece == nullptr || reply.target_incarnation != target_incarnation_ || reply.epoch != piece->epoch) {
    return Die(absl::UnavailableError(
        absl::StrCat("a reply to nothing that was asked: epoch ", reply.epoch, " request ", reply.request)));
  }
  has_answered_ = true;
  if (reply.code != 0) {
    return window_.Answer(reply.request,
                          absl::Status(static_cast<absl::StatusCode>(reply.code),
                                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  }
  if (window_.IsWanted(reply.request)) {
    if (bytes.size() != TotalBytes(piece->runs)) {
      return Die(absl::UnavailableError(
          absl::StrCat("a reply of ", bytes.size(), " bytes to a request of ", TotalBytes(piece->runs))));
    }
    for (const ByteRun& run : piece->runs) {
      std::memcpy(target_.data() + run.target_offset, bytes.data(), run.num_bytes);
      bytes = bytes.subspan(run.num_bytes);
    }
  }
  window_.Answer(reply.request, absl::OkStatus());
}

}  // namespace tandem::kvtransfer
