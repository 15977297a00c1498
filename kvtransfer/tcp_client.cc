#include "kvtransfer/tcp_client.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "kvtransfer/socket_address.h"

namespace tandem::kvtransfer {
namespace {

// A connection is made and welcomed in a few milliseconds, or the host is not there: TCP itself would try for minutes.
// Later silence is the control stream's to judge.
constexpr absl::Duration kWelcomeLimit = absl::Seconds(2);

template <typename Struct>
void Append(const Struct& value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpClient>> TcpClient::Connect(const LaneEnd& end, std::span<std::byte> target,
                                                              uint64_t target_incarnation) {
  ASSIGN_OR_RETURN(const base::HostPort source, base::ParseHostPort(end.worker_address));
  ASSIGN_OR_RETURN(const SocketAddress address, Resolve(source));
  ASSIGN_OR_RETURN(TcpSocket socket, TcpSocket::Connect(address, end.worker_address));
  return std::unique_ptr<TcpClient>(new TcpClient(end, target, target_incarnation, std::move(socket)));
}

TcpClient::TcpClient(const LaneEnd& end, std::span<std::byte> target, uint64_t target_incarnation, TcpSocket socket)
    : pool_bytes_(end.pool_bytes),
      target_(target),
      target_incarnation_(target_incarnation),
      socket_(std::move(socket)),
      welcome_deadline_(base::RealClock().Now() + kWelcomeLimit),
      window_({.num_bytes_max = kTcpPieceBytesMax,
               .num_runs_max = kTcpPieceRunsMax,
               .num_unanswered_max = kTcpWindowPieces},
              end.pool_bytes, target.size()),
      scratch_(kTcpPieceBytesMax) {
  TcpGreeting greeting = {.target_incarnation = target_incarnation};
  std::memcpy(greeting.key, end.remote_key.data(), sizeof(greeting.key));
  Append(greeting, out_);
}

void TcpClient::Add(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) {
  window_.Add(epoch, std::move(runs), std::move(done));
}

void TcpClient::FailAll(const absl::Status& status) {
  window_.FailAll(status);
  window_.CallDone();
}

void TcpClient::Die(const absl::Status& cause) {
  window_.Break(absl::UnavailableError(absl::StrCat("tcp: ", cause.message())));
  socket_ = TcpSocket();
}

bool TcpClient::Progress() {
  bool has_moved = false;
  if (window_.status().ok() && phase_ <= Phase::kGreeting && base::RealClock().Now() >= welcome_deadline_) {
    Die(absl::UnavailableError(absl::StrCat("no answer from the source in ", absl::FormatDuration(kWelcomeLimit))));
  }
  for (const auto move : {&TcpClient::Write, &TcpClient::Read}) {
    if (!window_.status().ok()) break;
    const absl::StatusOr<bool> moved = (this->*move)();
    if (!moved.ok()) Die(moved.status());
    has_moved = has_moved || !moved.ok() || *moved;
  }
  // Last, so that `done` may take its time.
  return window_.CallDone() || has_moved;
}

void TcpClient::Sleep(Waker& waker) {
  std::array<pollfd, 2> fds = {{{waker.fd(), POLLIN, 0}, {socket_.fd(), POLLIN, 0}}};  // a dead lane has no socket
  if (phase_ == Phase::kConnecting) fds[1].events = POLLOUT;
  if (phase_ > Phase::kConnecting && !out_.empty()) fds[1].events |= POLLOUT;
  int limit_ms = -1;
  if (window_.status().ok() && phase_ <= Phase::kGreeting) {
    const absl::Duration left = std::max(welcome_deadline_ - base::RealClock().Now(), absl::ZeroDuration());
    limit_ms = static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;  // rounded up: an early end would spin
  }
  if (poll(fds.data(), fds.size(), limit_ms) < 0 && errno != EINTR) {
    Die(absl::InternalError(absl::StrCat("poll: ", std::strerror(errno))));
  }
  if (fds[0].revents != 0) waker.Clear();
  if (phase_ == Phase::kConnecting && fds[1].revents != 0) {
    const absl::Status connected = socket_.ConnectResult();
    if (!connected.ok()) return Die(connected);
    phase_ = Phase::kGreeting;
  }
}

// ---- To the source ----

absl::StatusOr<bool> TcpClient::Write() {
  if (phase_ == Phase::kConnecting) return false;
  if (phase_ > Phase::kGreeting) {
    while (const Piece* const piece = window_.AskNext()) {
      Append(TcpRequest{.request = piece->request, .epoch = piece->epoch, .num_runs = piece->runs.size()}, out_);
      for (const ByteRun& run : piece->runs) {
        Append(TcpRun{.source_offset = run.source_offset, .num_bytes = run.num_bytes}, out_);
      }
    }
  }
  if (out_.empty()) return false;
  const iovec all = {out_.data(), out_.size()};
  ASSIGN_OR_RETURN(const size_t num_bytes, socket_.Write({&all, 1}));
  out_.erase(0, num_bytes);
  return num_bytes > 0;
}

// ---- From the source ----

absl::StatusOr<bool> TcpClient::Read() {
  if (phase_ == Phase::kConnecting) return false;
  const std::vector<iovec> places = NextPlaces();
  ASSIGN_OR_RETURN(const size_t num_bytes, socket_.Read(places));
  if (num_bytes == 0) return false;
  RETURN_IF_ERROR(Take(num_bytes));
  return true;
}

std::vector<iovec> TcpClient::NextPlaces() {
  std::vector<iovec> places;
  switch (phase_) {
    case Phase::kConnecting:
    case Phase::kGreeting:
      return {{reinterpret_cast<std::byte*>(&welcome_) + num_head_bytes_, sizeof(welcome_) - num_head_bytes_}};
    case Phase::kError:
      return {{error_.data() + num_error_bytes_, error_.size() - num_error_bytes_}};
    case Phase::kReplies:
      break;
    case Phase::kPayload:
      if (!window_.IsWanted(reply_.request)) {
        // One run at a time: none is longer than the scratch.
        return {{scratch_.data(), runs_[next_run_].num_bytes - next_run_bytes_}};
      }
      uint64_t skipped = next_run_bytes_;
      for (size_t i = next_run_; i < runs_.size(); ++i) {
        places.push_back({target_.data() + runs_[i].target_offset + skipped, runs_[i].num_bytes - skipped});
        skipped = 0;
      }
  }
  places.push_back({reinterpret_cast<std::byte*>(&head_) + num_head_bytes_, sizeof(head_) - num_head_bytes_});
  return places;
}

absl::Status TcpClient::Take(size_t num_bytes) {
  switch (phase_) {
    case Phase::kConnecting:
      return absl::InternalError("bytes before the connection");
    case Phase::kGreeting:
      num_head_bytes_ += num_bytes;
      return num_head_bytes_ == sizeof(welcome_) ? TakeWelcome() : absl::OkStatus();
    case Phase::kError:
      num_error_bytes_ += num_bytes;
      if (num_error_bytes_ == error_.size()) {
        EndReply(absl::Status(static_cast<absl::StatusCode>(reply_.code), error_));
      }
      return absl::OkStatus();
    case Phase::kReplies:
      break;
    case Phase::kPayload:
      while (next_run_ < runs_.size()) {
        const uint64_t taken = std::min<uint64_t>(num_bytes, runs_[next_run_].num_bytes - next_run_bytes_);
        num_bytes -= taken;
        next_run_bytes_ += taken;
        if (next_run_bytes_ < runs_[next_run_].num_bytes) return absl::OkStatus();
        ++next_run_;
        next_run_bytes_ = 0;
      }
      EndReply(absl::OkStatus());
  }
  num_head_bytes_ += num_bytes;
  return num_head_bytes_ == sizeof(head_) ? TakeHeader() : absl::OkStatus();
}

absl::Status TcpClient::TakeWelcome() {
  if (welcome_.magic != kTcpMagic || welcome_.target_incarnation != target_incarnation_ ||
      welcome_.pool_bytes != pool_bytes_) {
    return absl::UnavailableError("the source speaks another protocol, or is another one than was greeted");
  }
  phase_ = Phase::kReplies;
  num_head_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status TcpClient::TakeHeader() {
  reply_ = head_;
  num_head_bytes_ = 0;
  const Piece* const piece = window_.Oldest();
  if (reply_.magic != kTcpReplyMagic || piece == nullptr || reply_.request != piece->request ||
      reply_.epoch != piece->epoch) {
    return absl::UnavailableError(
        absl::StrCat("a reply to nothing that was asked: epoch ", reply_.epoch, " request ", reply_.request));
  }
  if (reply_.code != 0) {
    if (reply_.num_bytes > kTcpErrorBytesMax) {
      return absl::UnavailableError(
          absl::StrCat("an error of ", reply_.num_bytes, " bytes, limit ", kTcpErrorBytesMax));
    }
    error_.assign(reply_.num_bytes, '\0');
    num_error_bytes_ = 0;
    phase_ = Phase::kError;
    return error_.empty() ? Take(0) : absl::OkStatus();
  }
  if (reply_.num_bytes != TotalBytes(piece->runs)) {
    return absl::UnavailableError(
        absl::StrCat("a reply of ", reply_.num_bytes, " bytes to a request of ", TotalBytes(piece->runs)));
  }
  runs_ = piece->runs;
  next_run_ = 0;
  next_run_bytes_ = 0;
  phase_ = Phase::kPayload;
  return absl::OkStatus();
}

void TcpClient::EndReply(absl::Status status) {
  phase_ = Phase::kReplies;
  window_.Answer(reply_.request, std::move(status));
}

}  // namespace tandem::kvtransfer
