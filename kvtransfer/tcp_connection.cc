#include "kvtransfer/tcp_connection.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvtransfer/byte_run.h"

namespace tandem::kvtransfer {
namespace {

static_assert(kTcpPieceRunsMax + 1 <= 1024, "a reply and its header are one system call: the kernel's limit");

iovec PieceOf(const void* data, size_t num_bytes) { return {const_cast<void*>(data), num_bytes}; }

}  // namespace

TcpConnection::TcpConnection(TcpSocket socket, const TcpServed& served, absl::Duration greeting_deadline)
    : served_(served), greeting_deadline_(greeting_deadline), socket_(std::move(socket)) {}

short TcpConnection::PollEvents() const {
  const bool has_output = next_out_ < out_.size() || !requests_.empty();
  return static_cast<short>(POLLIN | (has_output ? POLLOUT : 0));
}

absl::Status TcpConnection::Progress(short events) {
  if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) RETURN_IF_ERROR(Read());
  return Write();
}

absl::Status TcpConnection::Read() {
  const iovec rest = PieceOf(in_.data() + num_in_, (has_greeted_ ? in_.size() : sizeof(TcpGreeting)) - num_in_);
  ASSIGN_OR_RETURN(const size_t num_bytes, socket_.Read({&rest, 1}));
  num_in_ += num_bytes;
  if (!has_greeted_) return TakeGreeting();
  return TakeRequests();
}

absl::Status TcpConnection::TakeGreeting() {
  TcpGreeting greeting;
  std::memcpy(&greeting, in_.data(), std::min(num_in_, sizeof(greeting)));
  if (num_in_ >= sizeof(greeting.magic) && greeting.magic != kTcpMagic) {
    return absl::InvalidArgumentError("it does not speak this protocol");
  }
  if (num_in_ < sizeof(greeting)) return absl::OkStatus();
  if (!std::equal(served_.key.begin(), served_.key.end(), greeting.key) || greeting.target_incarnation == 0) {
    return absl::InvalidArgumentError("its key is not of this process");
  }
  has_greeted_ = true;
  num_in_ = 0;
  target_incarnation_ = greeting.target_incarnation;
  welcome_ = {.target_incarnation = target_incarnation_, .pool_bytes = served_.pool.size()};
  out_ = {PieceOf(&welcome_, sizeof(welcome_))};
  return absl::OkStatus();
}

absl::Status TcpConnection::TakeRequests() {
  size_t begin = 0;
  while (num_in_ - begin >= sizeof(TcpRequest)) {
    Request request;
    std::memcpy(&request.header, in_.data() + begin, sizeof(request.header));
    if (request.header.num_runs == 0 || request.header.num_runs > kTcpPieceRunsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a request of ", request.header.num_runs, " runs: want 1 to ", kTcpPieceRunsMax));
    }
    const size_t num_bytes = sizeof(TcpRequest) + request.header.num_runs * sizeof(TcpRun);
    if (num_in_ - begin < num_bytes) break;
    if (requests_.size() >= kTcpWindowPieces) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kTcpWindowPieces, " requests unanswered"));
    }
    for (size_t i = 0; i < request.header.num_runs; ++i) {
      TcpRun run;
      std::memcpy(&run, in_.data() + begin + sizeof(TcpRequest) + i * sizeof(TcpRun), sizeof(run));
      request.runs.push_back({.source_offset = run.source_offset, .target_offset = 0, .num_bytes = run.num_bytes});
    }
    requests_.push_back(std::move(request));
    begin += num_bytes;
  }
  std::memmove(in_.data(), in_.data() + begin, num_in_ - begin);
  num_in_ -= begin;
  return absl::OkStatus();
}

absl::Status TcpConnection::Write() {
  if (next_out_ == out_.size()) {
    if (requests_.empty()) return absl::OkStatus();
    BeginReply();
  }
  const std::span<iovec> rest = std::span(out_).subspan(next_out_);
  ASSIGN_OR_RETURN(size_t num_bytes, socket_.Write(rest));
  for (iovec& piece : rest) {
    const size_t taken = std::min(num_bytes, piece.iov_len);
    piece = {static_cast<std::byte*>(piece.iov_base) + taken, piece.iov_len - taken};
    num_bytes -= taken;
    if (piece.iov_len > 0) break;
    ++next_out_;
  }
  return absl::OkStatus();
}

void TcpConnection::BeginReply() {
  const Request request = std::move(requests_.front());
  requests_.pop_front();
  reply_ = {.request = request.header.request, .epoch = request.header.epoch};
  out_ = {PieceOf(&reply_, sizeof(reply_))};
  next_out_ = 0;
  if (const absl::Status status = Gather(request); !status.ok()) {
    reply_.code = static_cast<uint32_t>(status.code());
    error_ = std::string(status.message().substr(0, kTcpErrorBytesMax));
    reply_.num_bytes = error_.size();
    if (!error_.empty()) out_.push_back(PieceOf(error_.data(), error_.size()));
  }
}

// Adds the runs to the reply. ABORTED, OUT_OF_RANGE: nothing of the pool may be read.
absl::Status TcpConnection::Gather(const Request& request) {
  RETURN_IF_ERROR(ValidateRuns(request.runs, served_.pool.size(), kTcpPieceBytesMax));
  reply_.num_bytes = TotalBytes(request.runs);
  if (reply_.num_bytes > kTcpPieceBytesMax) {
    return absl::OutOfRangeError(absl::StrCat("request of ", reply_.num_bytes, " bytes, limit ", kTcpPieceBytesMax));
  }
  RETURN_IF_ERROR(CheckReadable({target_incarnation_, request.header.epoch}, request.runs, served_.is_epoch_readable));
  for (const ByteRun& run : request.runs) {
    out_.push_back(PieceOf(served_.pool.data() + run.source_offset, run.num_bytes));
  }
  return absl::OkStatus();
}

}  // namespace tandem::kvtransfer
