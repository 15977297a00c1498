#include "kvtransfer/ucx_am_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kvtransfer/byte_run.h"
#include "kvtransfer/socket_address.h"

namespace tandem::kvtransfer {
namespace {

constexpr absl::Duration kShutdownLimit = absl::Seconds(1);

// Eager messages come whole and in memory of UCX, valid within the handler.
bool IsEager(const ucp_am_recv_param_t* param) { return (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0; }

absl::Status RegisterHandler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t handler, void* self) {
  ucp_am_handler_param_t param = {};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.cb = handler;
  param.arg = self;
  return FromUcx(ucp_worker_set_am_recv_handler(worker, &param), "ucx_am handler");
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxAmServer>> UcxAmServer::Create(ucp_worker_h worker, const std::string& host, int port,
                                                                 std::span<const std::byte> pool,
                                                                 EpochCheck is_epoch_readable) {
  std::unique_ptr<UcxAmServer> server(new UcxAmServer(worker, pool, std::move(is_epoch_readable)));
  RETURN_IF_ERROR(RegisterHandler(worker, kAmRequest, &UcxAmServer::OnRequest, server.get()));
  RETURN_IF_ERROR(server->Listen(host, port));
  return server;
}

UcxAmServer::UcxAmServer(ucp_worker_h worker, std::span<const std::byte> pool, EpochCheck is_epoch_readable)
    : worker_(worker), pool_(pool), is_epoch_readable_(std::move(is_epoch_readable)) {}

absl::Status UcxAmServer::Listen(const std::string& host, int port) {
  const base::HostPort where = {host, port};
  ASSIGN_OR_RETURN(const SocketAddress address, Resolve(where));
  ucp_listener_params_t params = {};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {address.get(), address.num_bytes};
  params.conn_handler = {&UcxAmServer::OnConnect, this};
  if (const ucs_status_t status = ucp_listener_create(worker_, &params, &listener_); status != UCS_OK) {
    return absl::UnavailableError(
        absl::StrCat("ucx_am: cannot listen on ", where.ToString(), ": ", ucs_status_string(status)));
  }
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  RETURN_IF_ERROR(FromUcx(ucp_listener_query(listener_, &attributes), "ucx_am listener"));
  port_ = PortOf(attributes.sockaddr);
  return absl::OkStatus();
}

void UcxAmServer::OnConnect(ucp_conn_request_h connect, void* self) {
  static_cast<UcxAmServer*>(self)->connects_.push_back(connect);
}

ucs_status_t UcxAmServer::OnRequest(void* self, const void* header, size_t header_bytes, void* data, size_t num_bytes,
                                    const ucp_am_recv_param_t* param) {
  Request request = {param->reply_ep, {}, {}};
  if (header_bytes == sizeof(request.header)) std::memcpy(&request.header, header, sizeof(request.header));
  const uint64_t num_runs = request.header.num_runs;
  // A request without runs stands for one that makes no sense; UCX gives it no data.
  if (IsEager(param) && num_runs > 0 && num_runs <= kAmPieceRunsMax && num_bytes == num_runs * sizeof(AmRun)) {
    request.runs.resize(num_runs);
    std::memcpy(request.runs.data(), data, num_bytes);
  }
  static_cast<UcxAmServer*>(self)->requests_.push_back(std::move(request));
  return UCS_OK;
}

void UcxAmServer::OnEndpointError(void* connection, ucp_ep_h, ucs_status_t) {
  static_cast<Connection*>(connection)->has_failed = true;
}

void UcxAmServer::Serve() {
  for (; !connects_.empty(); connects_.pop_front()) Accept(connects_.front());
  for (; !requests_.empty(); requests_.pop_front()) Answer(requests_.front());
  DropFailed();
}

void UcxAmServer::Accept(ucp_conn_request_h connect) {
  auto connection = std::make_shared<Connection>();
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = connect;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxAmServer::OnEndpointError, connection.get()};
  const ucs_status_t status = ucp_ep_create(worker_, &params, &connection->endpoint);
  if (status != UCS_OK) {
    LOG_WARNING("ucx_am cannot accept a connection", {"status", FromUcx(status, "ucx endpoint")});
    return;
  }
  connections_.emplace(connection->endpoint, std::move(connection));
}

void UcxAmServer::Answer(const Request& request) {
  const auto found = connections_.find(request.endpoint);
  if (found == connections_.end()) return;  // has failed since
  const std::shared_ptr<Connection>& connection = found->second;
  if (connection->has_failed) return;
  if (request.runs.empty() || connection->num_replies >= kAmWindowPieces) {
    LOG_WARNING("ucx_am connection closed: its requests make no sense or are too many",
                {"runs", request.header.num_runs}, {"unanswered", connection->num_replies},
                {"unanswered_max", kAmWindowPieces});
    connection->has_failed = true;
    return;
  }
  auto reply = std::make_unique<Reply>();
  reply->connection = connection;
  reply->header = {request.header.target_incarnation, request.header.epoch, request.header.request};
  const absl::Status status = Gather(request, *reply);
  if (!status.ok()) {
    reply->header.code = static_cast<uint64_t>(status.code());
    reply->error = std::string(status.message());
    reply->pieces = {{reply->error.data(), reply->error.size()}};
  }
  Send(std::move(reply));
}

absl::Status UcxAmServer::Gather(const Request& request, Reply& reply) const {
  std::vector<ByteRun> runs;
  for (const AmRun& run : request.runs) runs.push_back({run.source_offset, 0, run.num_bytes});
  RETURN_IF_ERROR(ValidateRuns(runs, pool_.size(), pool_.size()));
  if (TotalBytes(runs) > kAmPieceBytesMax) {
    return absl::OutOfRangeError(absl::StrCat("request of ", TotalBytes(runs), " bytes, limit ", kAmPieceBytesMax));
  }
  RETURN_IF_ERROR(CheckReadable({request.header.target_incarnation, request.header.epoch}, runs, is_epoch_readable_));
  for (const ByteRun& run : runs) {
    reply.pieces.push_back({const_cast<std::byte*>(pool_.data() + run.source_offset), run.num_bytes});
  }
  return absl::OkStatus();
}

void UcxAmServer::Send(std::unique_ptr<Reply> reply) {
  ucp_request_param_t param = {};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_EAGER;
  param.cb.send = &UcxAmServer::OnReplySent;
  const bool is_one = reply->pieces.size() == 1;
  param.datatype = is_one ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
  const void* buffer = is_one ? reply->pieces[0].buffer : reply->pieces.data();
  const size_t count = is_one ? reply->pieces[0].length : reply->pieces.size();
  Reply* const sent = reply.release();  // given back by OnReplySent
  param.user_data = sent;
  ++sent->connection->num_replies;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(sent->connection->endpoint, kAmReply, &sent->header, sizeof(sent->header), buffer, count, &param);
  if (!UCS_PTR_IS_PTR(request)) OnReplySent(nullptr, UCS_PTR_STATUS(request), sent);
}

void UcxAmServer::OnReplySent(void* request, ucs_status_t status, void* reply) {
  const std::unique_ptr<Reply> sent(static_cast<Reply*>(reply));
  --sent->connection->num_replies;
  if (status != UCS_OK) sent->connection->has_failed = true;
  if (request != nullptr) ucp_request_free(request);
}

// Closing makes UCX give back the replies that are under way; they keep their connection alive.
void UcxAmServer::DropFailed() {
  std::erase_if(connections_, [](const auto& entry) {
    if (!entry.second->has_failed) return false;
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t closing = ucp_ep_close_nbx(entry.second->endpoint, &param);
    if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
    return true;
  });
}

void UcxAmServer::Shutdown() {
  while (ucp_worker_progress(worker_) > 0) {
  }
  for (; !connects_.empty(); connects_.pop_front()) Accept(connects_.front());
  std::vector<std::shared_ptr<Connection>> closing;
  for (const auto& [id, connection] : connections_) {
    connection->has_failed = true;
    closing.push_back(connection);
  }
  DropFailed();
  const auto is_busy = [](const std::shared_ptr<Connection>& connection) { return connection->num_replies > 0; };
  const absl::Duration deadline = base::RealClock().Now() + kShutdownLimit;
  while (std::any_of(closing.begin(), closing.end(), is_busy) && base::RealClock().Now() < deadline) {
    ucp_worker_progress(worker_);
  }
}

}  // namespace tandem::kvtransfer
