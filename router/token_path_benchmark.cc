// What the router spends on a token between the decoded message of a decode worker and the bytes of the event stream:
// cluster, inbox, coroutine, request and choice state, detokeniser, escaping, metrics. Sockets and gRPC are not in it.
//
// Beside it, in the same run: the floor of any implementation (escape each token between two constant texts; copy the
// bytes), and the parsing of the message, which gRPC's thread does. Budget: 2 us a token, 16 KB a stream.
//
//   bazel run //router:token_path_benchmark
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "boost/asio/io_context.hpp"
#include "router/admission.h"
#include "router/chat_preparation.h"
#include "router/cluster.h"
#include "router/metrics.h"
#include "router/openai/json_text.h"
#include "router/preparation_threads.h"
#include "router/request_pipeline.h"
#include "router/testing/fake_channel.h"

namespace tandem::router {
namespace {

constexpr char kBootstrap[] = "127.0.0.1:8998";

// Words as a model writes them: about four bytes each, some that JSON escapes, some that are no ASCII.
class WordTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kNumIds = 64;
  WordTokenizer() {
    for (TokenId id = 0; id < kNumIds; ++id) {
      words_.push_back(id % 16 == 15 ? "\"\n" : id % 16 == 7 ? " \u4e16\u754c" : absl::StrCat(" wo", id));
    }
  }
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, AddedTokens) const override {
    return std::vector<TokenId>(text.size() / 4 + 1);
  }
  absl::StatusOr<std::vector<TokenId>> Encode(const MarkedText& prompt) const override {
    return Encode(prompt.text(), AddedTokens::kMatch);
  }
  absl::string_view TokenBytes(TokenId id) const override { return words_[id]; }
  std::string Decode(absl::Span<const TokenId>) const override { return ""; }
  std::optional<TokenId> FindAddedToken(absl::string_view) const override { return std::nullopt; }
  bool IsSpecial(TokenId) const override { return false; }
  TokenId num_ids() const override { return kNumIds; }

 private:
  std::vector<std::string> words_;
};

constexpr RequestPipeline::Endpoint kChat = {"chatcmpl-", PrepareChat};

// A client that takes everything at once.
class SinkExchange final : public Exchange {
 public:
  explicit SinkExchange(std::string body) : body_(std::move(body)) { buffer_.reserve(size_t{4} << 10); }
  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return std::move(body_); }
  void BodyDone() override {}
  void SetObserver(std::function<void(ExchangeEvent)> observer) override { observer_ = std::move(observer); }
  void AddHeader(const std::string&, const std::string&) override {}
  void Respond(HttpResponse response) override {
    std::fprintf(stderr, "request failed: %s\n", response.body.c_str());
    std::exit(1);
  }
  void StartStream(const std::string&, const std::string&) override {}
  void Write(absl::string_view bytes) override {
    if (buffer_.size() + bytes.size() > buffer_.capacity()) buffer_.clear();
    buffer_.append(bytes.data(), bytes.size());
    num_bytes += bytes.size();
  }
  void Finish() override {}
  size_t num_unsent_bytes() const override { return 0; }
  void NotifyWhenDrained() override {}
  void Leave() { observer_(ExchangeEvent::kClientLeft); }

  size_t num_bytes = 0;

 private:
  HttpRequest request_;
  std::string body_;
  std::string buffer_;
  std::function<void(ExchangeEvent)> observer_;
};

// A router without sockets, with so many streams under way.
class Streams {
 public:
  Streams(int num_streams, const std::string& members)
      : cluster_(ClusterOptions(), channels_.Factory()),
        admission_({.in_flight_max = num_streams + 1}, clock_),
        pipeline_({.io_context = &io_context_,
                   .preparation = &preparation_,
                   .clock = &clock_,
                   .context = &context_,
                   .cluster = &cluster_,
                   .admission = &admission_,
                   .metrics = &metrics_},
                  PipelineSettings()) {
    context_.tokenizer = &tokenizer_;
    context_.facts.vocab_size = WordTokenizer::kNumIds;
    context_.facts.eos_token_ids = {0};
    context_.served_model_name = "deepseek-v3.2";
    context_.context_length = int64_t{1} << 30;
    cluster_.Tick(clock_.Now());
    channels_.to("p:1").Greet("p", 1, kBootstrap);
    channels_.to("d:1").Greet("d", 2);
    proto::WorkerMessage usable;
    usable.mutable_peer_status()->set_bootstrap_address(kBootstrap);
    usable.mutable_peer_status()->set_is_usable(true);
    channels_.to("d:1").Receive(usable);
    for (int i = 0; i < num_streams; ++i) {
      exchanges_.push_back(std::make_shared<SinkExchange>(absl::StrCat(
          R"({"model":"deepseek-v3.2","messages":[{"role":"user","content":"hi"}],"stream":true)", members, "}")));
    }
    const size_t heap_before = mallinfo2().uordblks;
    for (const auto& exchange : exchanges_) {
      pipeline_.Serve(exchange, kChat, {"bench"});
      Poll();
    }
    bytes_per_stream_ = (mallinfo2().uordblks - heap_before) / std::max<size_t>(exchanges_.size(), 1);
    for (const proto::GeneratePart& part : channels_.to("d:1").parts) {
      proto::SequenceTokens* sequence = batch_.mutable_tokens()->add_sequences();
      *sequence->mutable_key() = part.key();
      sequence->add_tokens(0);
    }
  }
  ~Streams() {
    for (const auto& exchange : exchanges_) exchange->Leave();
    Poll();
    for (const proto::SequenceTokens& sequence : batch_.tokens().sequences()) {
      proto::WorkerMessage ended;
      *ended.mutable_ended()->mutable_key() = sequence.key();
      channels_.to("d:1").Receive(ended);
    }
    Poll();
  }

  // One token for every stream, in one message.
  void Step() {
    for (proto::SequenceTokens& sequence : *batch_.mutable_tokens()->mutable_sequences()) {
      sequence.set_first_position(static_cast<uint32_t>(position_));
      sequence.set_tokens(0, static_cast<TokenId>(1 + position_ % (WordTokenizer::kNumIds - 1)));
      if (sequence.logprobs_size() > 0) sequence.set_logprobs(0, -0.125f);
    }
    ++position_;
    channels_.to("d:1").Receive(batch_);
    Poll();
  }
  void ServeOne(int num_tokens) {
    std::vector<proto::GeneratePart>& parts = channels_.to("d:1").parts;
    parts.clear();
    pipeline_.Serve(
        std::make_shared<SinkExchange>(absl::StrCat(
            R"({"model":"deepseek-v3.2","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":)",
            num_tokens, "}")),
        kChat, {.id = "benchmark"});
    Poll();
    proto::WorkerMessage message;
    proto::SequenceTokens* sequence = message.mutable_tokens()->add_sequences();
    *sequence->mutable_key() = parts.at(0).key();
    sequence->add_tokens(0);
    for (int i = 0; i < num_tokens; ++i) {
      sequence->set_first_position(static_cast<uint32_t>(i));
      sequence->set_tokens(0, static_cast<TokenId>(1 + i % (WordTokenizer::kNumIds - 1)));
      if (i + 1 == num_tokens) sequence->set_finish_reason(proto::FINISH_REASON_LENGTH);
      channels_.to("d:1").Receive(message);
      Poll();
    }
    proto::WorkerMessage ended;
    *ended.mutable_ended()->mutable_key() = parts.at(0).key();
    channels_.to("d:1").Receive(ended);
    Poll();
  }
  void WithLogprobs(int num_top) {
    for (proto::SequenceTokens& sequence : *batch_.mutable_tokens()->mutable_sequences()) {
      sequence.add_logprobs(-0.125f);
      proto::TopLogprobs* top = sequence.add_top_logprobs();
      for (int i = 0; i < num_top; ++i) {
        top->add_tokens(static_cast<uint32_t>(i));
        top->add_logprobs(-0.125f * static_cast<float>(i + 1));
      }
    }
  }
  size_t num_bytes() const {
    size_t num_bytes = 0;
    for (const auto& exchange : exchanges_) num_bytes += exchange->num_bytes;
    return num_bytes;
  }
  size_t bytes_per_stream() const { return bytes_per_stream_; }
  const proto::WorkerMessage& batch() const { return batch_; }

 private:
  static Cluster::Options ClusterOptions() {
    Cluster::Options options;
    options.prefill_workers = {"p:1"};
    options.decode_workers = {"d:1"};
    options.identity.set_incarnation(77);
    return options;
  }
  void Poll() {
    io_context_.restart();
    io_context_.poll();
  }

  const base::Clock& clock_ = base::RealClock();
  boost::asio::io_context io_context_{1};
  PreparationThreads preparation_;
  WordTokenizer tokenizer_;
  ModelContext context_;
  RouterMetrics metrics_;
  FakeChannels channels_;
  Cluster cluster_;
  Admission admission_;
  RequestPipeline pipeline_;
  std::vector<std::shared_ptr<SinkExchange>> exchanges_;
  proto::WorkerMessage batch_;
  int64_t position_ = 0;
  size_t bytes_per_stream_ = 0;
};

void Report(benchmark::State& state, const Streams& streams) {
  const auto num_tokens = static_cast<double>(state.iterations() * state.range(0));
  state.counters["us_per_token"] =
      benchmark::Counter(num_tokens * 1e-6, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["wire_bytes_per_token"] = static_cast<double>(streams.num_bytes()) / num_tokens;
  state.counters["heap_bytes_per_stream"] = static_cast<double>(streams.bytes_per_stream());
}

void BM_TokenPath(benchmark::State& state) {
  Streams streams(static_cast<int>(state.range(0)), "");
  for (auto _ : state) streams.Step();
  Report(state, streams);
}
BENCHMARK(BM_TokenPath)->Arg(1)->Arg(64)->Arg(1000);

void BM_TokenPathWithStops(benchmark::State& state) {
  Streams streams(static_cast<int>(state.range(0)), R"(,"stop":["###"," wo9 wo10 wo99"])");
  for (auto _ : state) streams.Step();
  Report(state, streams);
}
BENCHMARK(BM_TokenPathWithStops)->Arg(64);

void BM_TokenPathWithFiveTopLogprobs(benchmark::State& state) {
  Streams streams(static_cast<int>(state.range(0)), R"(,"logprobs":true,"top_logprobs":5)");
  streams.WithLogprobs(5);
  for (auto _ : state) streams.Step();
  Report(state, streams);
}
BENCHMARK(BM_TokenPathWithFiveTopLogprobs)->Arg(64);

// A request of 200 tokens from its body to its release, one message a token.
void BM_WholeRequest(benchmark::State& state) {
  Streams streams(0, "");
  for (auto _ : state) streams.ServeOne(200);
}
BENCHMARK(BM_WholeRequest)->Unit(benchmark::kMicrosecond);

void BM_ParseTheMessage(benchmark::State& state) {
  const std::string wire = Streams(static_cast<int>(state.range(0)), "").batch().SerializeAsString();
  proto::WorkerMessage message;
  for (auto _ : state) benchmark::DoNotOptimize(message.ParseFromString(wire));
  state.counters["us_per_token"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)) * 1e-6,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_ParseTheMessage)->Arg(64);

// The bytes around a token's text in an event.
std::string EventHead() {
  return R"(data: {"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,)"
         R"("model":"deepseek-v3.2","choices":[{"index":0,"delta":{"content":")";
}
constexpr char kEventTail[] = "\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

void BM_EscapeOnly(benchmark::State& state) {
  const WordTokenizer tokenizer;
  const std::string head = EventHead();
  std::string out;
  TokenId token = 0;
  for (auto _ : state) {
    out.clear();
    out += head;
    AppendJsonEscaped(out, tokenizer.TokenBytes(token++ % WordTokenizer::kNumIds));
    out += kEventTail;
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["us_per_token"] = benchmark::Counter(static_cast<double>(state.iterations()) * 1e-6,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_EscapeOnly);

void BM_CopyOnly(benchmark::State& state) {
  const std::string event = EventHead() + " word" + kEventTail;
  std::string out(event.size(), '\0');
  for (auto _ : state) {
    std::memcpy(out.data(), event.data(), event.size());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.counters["us_per_token"] = benchmark::Counter(static_cast<double>(state.iterations()) * 1e-6,
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_CopyOnly);

}  // namespace
}  // namespace tandem::router

BENCHMARK_MAIN();
