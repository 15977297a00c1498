// Proves: each end of a ucx_am lane stands whatever the other end sends. The other end is here a bare UCX worker that
// says what it likes: stale, doubled, cut and foreign replies never reach the target, and a source reads nothing
// outside its pool, for no unknown epoch, and keeps serving others.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "kvtransfer/lane_rig.h"
#include "kvtransfer/socket_address.h"
#include "kvtransfer/ucx_am_lane.h"
#include "kvtransfer/ucx_am_wire.h"
#include "kvtransfer/ucx_handles.h"
#include "kvtransfer/ucx_source.h"

namespace tandem::kvtransfer {
namespace {

constexpr uint64_t kPoolBytes = 1 << 20;
constexpr std::byte kUntouched{0xee};

// A message as it came in.
struct Received {
  ucp_ep_h reply_endpoint = nullptr;
  std::string header;
  std::string payload;

  template <typename T>
  T As() const {
    T value;
    EXPECT_EQ(header.size(), sizeof(value));
    std::memcpy(&value, header.data(), std::min(header.size(), sizeof(value)));
    return value;
  }
};

// A worker without manners, progressed by the test's thread.
class BarePeer {
 public:
  explicit BarePeer(unsigned listens_to) {
    context_ = *MakeUcpContext(UcxTransport::kTcp, "all");
    worker_ = *MakeUcpWorker(context_.get());
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = listens_to;
    handler.cb = &BarePeer::OnMessage;
    handler.arg = this;
    EXPECT_EQ(ucp_worker_set_am_recv_handler(worker_.get(), &handler), UCS_OK);
  }
  ~BarePeer() {
    for (const ucp_ep_h endpoint : endpoints_) {
      ucp_request_param_t param = {};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint, &param);
      if (UCS_PTR_IS_PTR(closing)) ucp_request_free(closing);
    }
  }

  void Send(ucp_ep_h endpoint, unsigned id, std::string header, std::string payload) {
    sent_.push_back({nullptr, std::move(header), std::move(payload)});
    const Received& message = sent_.back();
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
    const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint, id, message.header.data(), message.header.size(),
                                                     message.payload.data(), message.payload.size(), &param);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  }
  // Progresses until `is_done`; false after two minutes.
  template <typename Condition>
  bool ProgressUntil(const Condition& is_done) {
    const absl::Duration deadline = base::RealClock().Now() + absl::Minutes(2);
    while (!is_done()) {
      if (base::RealClock().Now() > deadline) return false;
      ucp_worker_progress(worker_.get());
      for (; !connects_.empty(); connects_.pop_front()) Accept(connects_.front());
    }
    return true;
  }

 protected:
  static ucs_status_t OnMessage(void* self, const void* header, size_t header_bytes, void* data, size_t num_bytes,
                                const ucp_am_recv_param_t* param) {
    static_cast<BarePeer*>(self)->received_.push_back({param->reply_ep,
                                                       {static_cast<const char*>(header), header_bytes},
                                                       {static_cast<const char*>(data), num_bytes}});
    return UCS_OK;
  }
  static void OnError(void* self, ucp_ep_h, ucs_status_t) { static_cast<BarePeer*>(self)->has_error_ = true; }
  ucp_ep_params_t ErrorMode() {
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {&BarePeer::OnError, this};
    return params;
  }
  void Accept(ucp_conn_request_h connect) {
    ucp_ep_params_t params = ErrorMode();
    params.field_mask |= UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = connect;
    ucp_ep_h endpoint = nullptr;
    // Fails if the other end has left since it asked, as a lane that is replaced at once does.
    if (ucp_ep_create(worker_.get(), &params, &endpoint) == UCS_OK) endpoints_.push_back(endpoint);
  }

  UcpContext context_;
  UcpWorker worker_;
  std::vector<ucp_ep_h> endpoints_;
  std::deque<ucp_conn_request_h> connects_;
  std::deque<Received> sent_;
  std::deque<Received> received_;
  bool has_error_ = false;
};

std::string Bytes(const auto& value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

// ---- A bare source, against the lane. ----

class BareSource final : public BarePeer {
 public:
  BareSource() : BarePeer(kAmRequest) {
    const SocketAddress address = *Resolve({"127.0.0.1", 0});
    ucp_listener_params_t params = {};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {address.get(), address.num_bytes};
    params.conn_handler = {&BareSource::OnConnect, this};
    EXPECT_EQ(ucp_listener_create(worker_.get(), &params, &listener_), UCS_OK);
    ucp_listener_attr_t attributes = {};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    EXPECT_EQ(ucp_listener_query(listener_, &attributes), UCS_OK);
    end_ = {.kind = kUcxAmKind,
            .worker_address = absl::StrCat("127.0.0.1:", PortOf(attributes.sockaddr)),
            .pool_address = 0,
            .pool_bytes = kPoolBytes,
            .remote_key = ""};
  }
  ~BareSource() { ucp_listener_destroy(listener_); }
  const LaneEnd& end() const { return end_; }
  Received WaitForRequest() {
    EXPECT_TRUE(ProgressUntil([&] { return !received_.empty(); }));
    const Received request = received_.front();
    received_.pop_front();
    return request;
  }

 private:
  static void OnConnect(ucp_conn_request_h connect, void* self) {
    static_cast<BareSource*>(self)->connects_.push_back(connect);
  }
  ucp_listener_h listener_ = nullptr;
  LaneEnd end_;
};

class UcxAmLaneProtocolTest : public testing::Test {
 protected:
  UcxAmLaneProtocolTest() : target_(kPoolBytes, kUntouched) {
    auto lane = OpenUcxAmLane(source_.end(), target_, kRigIncarnation);
    EXPECT_TRUE(lane.ok()) << lane.status();
    lane_ = *std::move(lane);
  }
  // One fetch of 100 bytes in epoch 5; the reply that would be right.
  AmReply Ask() {
    lane_->Fetch(5, {{0, 0, 100}}, [&, done = results_.Expect()](absl::Status status) {
      done(std::move(status));
      is_done_ = true;
    });
    request_ = source_.WaitForRequest();
    const auto header = request_.As<AmRequest>();
    EXPECT_EQ(header.target_incarnation, kRigIncarnation);
    EXPECT_EQ(header.epoch, 5u);
    EXPECT_EQ(header.num_runs, 1u);
    return {.target_incarnation = kRigIncarnation, .epoch = 5, .request = header.request, .code = 0};
  }
  void Reply(const AmReply& reply, size_t num_bytes) {
    source_.Send(request_.reply_endpoint, kAmReply, Bytes(reply), std::string(num_bytes, 'x'));
  }
  absl::Status Result() {
    EXPECT_TRUE(source_.ProgressUntil([&] { return is_done_.load(); }));
    return results_.Wait().back();
  }
  bool IsTargetUntouched() const {
    return std::count(target_.begin(), target_.end(), kUntouched) == static_cast<int64_t>(kPoolBytes);
  }

  BareSource source_;
  std::vector<std::byte> target_;
  FetchResults results_;
  std::atomic<bool> is_done_ = false;
  Received request_;
  std::unique_ptr<FetchLane> lane_;
};

TEST_F(UcxAmLaneProtocolTest, TakesTheReplyThatItAskedFor) {
  Reply(Ask(), 100);
  EXPECT_TRUE(Result().ok());
  EXPECT_EQ(std::count(target_.begin(), target_.end(), std::byte{'x'}), 100);
}

TEST_F(UcxAmLaneProtocolTest, RefusesAReplyOfAnotherEpoch) {
  AmReply reply = Ask();
  reply.epoch = 6;
  Reply(reply, 100);
  EXPECT_TRUE(absl::IsUnavailable(Result()));
  EXPECT_TRUE(IsTargetUntouched());
}

TEST_F(UcxAmLaneProtocolTest, RefusesAReplyToAnotherIncarnation) {
  AmReply reply = Ask();
  ++reply.target_incarnation;
  Reply(reply, 100);
  EXPECT_TRUE(absl::IsUnavailable(Result()));
  EXPECT_TRUE(IsTargetUntouched());
}

TEST_F(UcxAmLaneProtocolTest, RefusesAReplyToARequestThatItNeverMade) {
  AmReply reply = Ask();
  reply.request += 1;
  Reply(reply, 100);
  EXPECT_TRUE(absl::IsUnavailable(Result()));
  EXPECT_TRUE(IsTargetUntouched());
}

TEST_F(UcxAmLaneProtocolTest, RefusesAReplyOfAnotherLength) {
  for (const size_t num_bytes : {0u, 99u, 101u}) {
    is_done_ = false;
    lane_ = *OpenUcxAmLane(source_.end(), target_, kRigIncarnation);
    Reply(Ask(), num_bytes);
    EXPECT_TRUE(absl::IsUnavailable(Result())) << num_bytes;
    EXPECT_TRUE(IsTargetUntouched());
  }
}

TEST_F(UcxAmLaneProtocolTest, RefusesTheSameReplyTwice) {
  const AmReply reply = Ask();
  Reply(reply, 100);
  EXPECT_TRUE(Result().ok());
  std::fill(target_.begin(), target_.end(), kUntouched);  // the page has a new tenant
  is_done_ = false;
  Ask();
  Reply(reply, 100);
  EXPECT_TRUE(absl::IsUnavailable(Result()));
  EXPECT_TRUE(IsTargetUntouched());
}

TEST_F(UcxAmLaneProtocolTest, DrainsTheReplyToACancelledFetch) {
  const AmReply reply = Ask();
  lane_->Cancel(5);
  EXPECT_TRUE(absl::IsCancelled(Result()));
  Reply(reply, 100);  // late
  is_done_ = false;
  const AmReply next = Ask();
  EXPECT_TRUE(IsTargetUntouched());
  Reply(next, 100);  // the lane lives
  EXPECT_TRUE(Result().ok());
}

TEST_F(UcxAmLaneProtocolTest, PassesOnTheSourcesError) {
  AmReply reply = Ask();
  reply.code = static_cast<uint64_t>(absl::StatusCode::kAborted);
  Reply(reply, 3);
  EXPECT_EQ(Result(), absl::AbortedError("xxx"));
  EXPECT_TRUE(IsTargetUntouched());
}

// ---- A bare target, against the source. ----

class BareTarget final : public BarePeer {
 public:
  explicit BareTarget(const LaneEnd& end) : BarePeer(kAmReply) {
    const SocketAddress address = *Resolve(*base::ParseHostPort(end.worker_address));
    ucp_ep_params_t params = ErrorMode();
    params.field_mask |= UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr = {address.get(), address.num_bytes};
    endpoints_.emplace_back();
    EXPECT_EQ(ucp_ep_create(worker_.get(), &params, &endpoints_.back()), UCS_OK);
  }
  void Request(uint64_t incarnation, uint64_t epoch, const std::vector<AmRun>& runs) {
    std::string payload;
    for (const AmRun& run : runs) payload += Bytes(run);
    Raw(Bytes(AmRequest{incarnation, epoch, next_request_++, runs.size()}), std::move(payload));
  }
  void Raw(std::string header, std::string payload) {
    Send(endpoints_[0], kAmRequest, std::move(header), std::move(payload));
  }
  absl::StatusCode NextCode() {
    EXPECT_TRUE(ProgressUntil([&] { return !received_.empty(); }));
    last_ = received_.front();
    received_.pop_front();
    return static_cast<absl::StatusCode>(last_.As<AmReply>().code);
  }
  absl::StatusCode Ask(uint64_t incarnation, uint64_t epoch, const std::vector<AmRun>& runs) {
    Request(incarnation, epoch, runs);
    return NextCode();
  }
  bool WaitForError() {
    return ProgressUntil([&] { return has_error_; });
  }
  const std::string& payload() const { return last_.payload; }

 private:
  uint64_t next_request_ = 1;
  Received last_;
};

class UcxSourceProtocolTest : public testing::Test {
 protected:
  UcxSourceProtocolTest() {
    auto source =
        UcxSource::Start({.pool_bytes = kPoolBytes, .offers_shm = false, .is_epoch_readable = IsRigEpochReadable});
    EXPECT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    FillRandom(source_->pool(), 1);
    target_ = std::make_unique<BareTarget>(source_->lane_ends()[0]);
  }
  std::unique_ptr<UcxSource> source_;
  std::unique_ptr<BareTarget> target_;
};

TEST_F(UcxSourceProtocolTest, AnswersWithTheRunsInOrder) {
  ASSERT_EQ(target_->Ask(kRigIncarnation, 1, {{1000, 10}, {0, 5}}), absl::StatusCode::kOk);
  std::string expected(15, '\0');
  std::memcpy(expected.data(), source_->pool().data() + 1000, 10);
  std::memcpy(expected.data() + 10, source_->pool().data(), 5);
  EXPECT_EQ(target_->payload(), expected);
}

TEST_F(UcxSourceProtocolTest, ReadsNothingForUnknownEpochsAndIncarnations) {
  EXPECT_EQ(target_->Ask(kRigIncarnation, 101, {{0, 10}}), absl::StatusCode::kAborted);
  EXPECT_EQ(target_->Ask(kRigIncarnation + 1, 1, {{0, 10}}), absl::StatusCode::kAborted);
  EXPECT_EQ(target_->payload(), "epoch 1 is not readable at the source");
}

TEST_F(UcxSourceProtocolTest, ReadsNothingOutsideItsPool) {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{kPoolBytes, 1}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{kHuge, 2}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{0, 10}, {1, kHuge}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{0, 0}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{0, kAmPieceBytesMax}, {0, 1}}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{0, kAmPieceBytesMax}}), absl::StatusCode::kOk);
}

TEST_F(UcxSourceProtocolTest, DropsWhoMakesNoSenseAndServesOthers) {
  const std::vector<std::pair<std::string, std::string>> malformed = {
      {"", ""},
      {"short", std::string(100, 'x')},
      {Bytes(AmRequest{kRigIncarnation, 1, 1, 2}), std::string(sizeof(AmRun), 'x')},
      {Bytes(AmRequest{kRigIncarnation, 1, 1, 0}), ""},
      {Bytes(AmRequest{kRigIncarnation, 1, 1, uint64_t{1} << 60}), ""},
      {Bytes(AmRequest{kRigIncarnation, 1, 1, 257}), std::string(257 * sizeof(AmRun), 'x')}};
  for (const auto& [header, payload] : malformed) {
    BareTarget liar(source_->lane_ends()[0]);
    liar.Raw(header, payload);
    EXPECT_TRUE(liar.WaitForError()) << header.size() << " " << payload.size();
    EXPECT_EQ(target_->Ask(kRigIncarnation, 1, {{0, 10}}), absl::StatusCode::kOk);
  }
}

TEST_F(UcxSourceProtocolTest, DropsWhoAsksForMoreThanTheWindowAndServesOthers) {
  BareTarget other(source_->lane_ends()[0]);
  ASSERT_EQ(other.Ask(kRigIncarnation, 1, {{0, 10}}), absl::StatusCode::kOk);
  // Nothing is taken off the connection meanwhile, so its replies pile up at the source.
  for (int i = 0; i < 2000; ++i) target_->Request(kRigIncarnation, 1, {{0, kAmPieceBytesMax}});
  EXPECT_TRUE(target_->WaitForError());
  EXPECT_EQ(other.Ask(kRigIncarnation, 1, {{0, 10}}), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tandem::kvtransfer
