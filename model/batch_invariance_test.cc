// Proves, on v32-micro, that a request's logits and tokens are the same bits in any company: prompts cut into steps of
// at most 64, 100, 512 or 2,048 rows, alone or among up to 16 requests of other lengths that come and go at other
// steps, prompts and decoded rows side by side, with FP8 and with BF16 cache records. Logprobs are functions of such a
// row of logits. Each mix is drawn from a seed; a failure prints it.
// That one chunk's bits are right is deepseek_model_golden_test.cc's matter.
#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "model/testing/micro_model.h"

namespace tandem::model {
namespace {

using kvcache::KvCacheDtype;

constexpr int kVocab = 1024;
constexpr int kChunkSizes[] = {64, 100, 512, 2048};
constexpr int kRequestsMax = 16;
constexpr int kLongest = kRequestsMax - 1;  // the request of more than 2,048 tokens

struct Request {
  std::vector<int32_t> prompt;
  int num_new_tokens = 0;
};

// What a request gave: the row of logits that each token was drawn from.
struct Transcript {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // [tokens, vocab]
};

int32_t LargestOf(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A request under way in a batch.
struct Running {
  const Request* request = nullptr;
  TestSequence sequence;
  Transcript transcript;

  int64_t num_prompt_left() const { return static_cast<int64_t>(request->prompt.size()) - sequence.num_cached; }
  bool is_done() const { return static_cast<int>(transcript.tokens.size()) == request->num_new_tokens; }
};

// The rows of one step, as an engine gathers them.
class Step final {
 public:
  // The next num_rows tokens of the prompt, or the last drawn token.
  void Add(Running& running, int num_rows) {
    segments_.push_back({.row_begin = static_cast<int>(tokens_.size()),
                         .num_rows = num_rows,
                         .first_position = running.sequence.num_cached,
                         .page_table = running.sequence.pages});
    for (int i = 0; i < num_rows; ++i) {
      const auto position = static_cast<size_t>(running.sequence.num_cached + i);
      tokens_.push_back(position < running.request->prompt.size() ? running.request->prompt[position]
                                                                  : running.transcript.tokens.back());
    }
    running.sequence.num_cached += num_rows;
    if (running.num_prompt_left() > 0) return;
    logits_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
    drawing_.push_back(&running);
  }
  int num_rows() const { return static_cast<int>(tokens_.size()); }

  void Run(TestModel& model) {
    std::vector<float> logits(drawing_.size() * kVocab);
    const absl::Status status = model.model().Forward(
        {.tokens = tokens_, .segments = segments_, .logits_rows = logits_rows_}, [](int) {}, absl::MakeSpan(logits));
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < drawing_.size(); ++i) {
      const auto row = absl::MakeConstSpan(logits).subspan(i * kVocab, kVocab);
      Transcript& transcript = drawing_[i]->transcript;
      transcript.tokens.push_back(LargestOf(row));
      transcript.logits.insert(transcript.logits.end(), row.begin(), row.end());
    }
  }

 private:
  std::vector<int32_t> tokens_;
  std::vector<Segment> segments_;
  std::vector<int32_t> logits_rows_;
  std::vector<Running*> drawing_;
};

class BatchInvarianceTest : public ::testing::Test {
 protected:
  static std::vector<Request> MakeRequests() {
    std::vector<Request> requests;
    std::mt19937 random(11);
    for (int i = 0; i < kRequestsMax; ++i) {
      // Both sides of index_topk (16), of pages (64) and of chunks; one that needs two chunks of 2,048.
      const int lengths[] = {1, 15, 17, 63, 64, 65, 99, 101, 128, 200, 300, 513, 640, 30, 256, 2100};
      Request request{.prompt = GoldenTokens(lengths[i], kVocab), .num_new_tokens = static_cast<int>(2 + random() % 9)};
      for (int32_t& token : request.prompt) token = (token + 131 * i) % kVocab;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  // What request i gives alone: computed once for each format.
  const Transcript& AloneOnce(KvCacheDtype dtype, int i) {
    static auto* computed = new std::map<std::pair<KvCacheDtype, int>, Transcript>();
    const auto [it, is_new] = computed->try_emplace({dtype, i});
    if (is_new) it->second = Alone(dtype, requests_[i]);
    return it->second;
  }

  TestModel BuildModel(KvCacheDtype dtype, int num_rows_max, uint32_t page_order_seed) const {
    int64_t num_pages = 1;
    for (const Request& request : requests_) num_pages += PagesOf(request);
    return TestModel(checkpoint_, {.num_rows_max = num_rows_max,
                                   .num_positions_max = 2176,
                                   .num_pages = num_pages,
                                   .kv_cache_dtype = dtype,
                                   .with_mtp = false,
                                   .page_order_seed = page_order_seed});
  }
  static int64_t TokensOf(const Request& request) {
    return static_cast<int64_t>(request.prompt.size()) + request.num_new_tokens;
  }
  static int64_t PagesOf(const Request& request) { return kvcache::PagesForTokens(TokensOf(request)); }

  // The whole prompt in one step, then token by token.
  Transcript Alone(KvCacheDtype dtype, const Request& request) const {
    TestModel model = BuildModel(dtype, static_cast<int>(request.prompt.size()), 1);
    Running running{.request = &request, .sequence = model.NewSequence(TokensOf(request)), .transcript = {}};
    while (!running.is_done() && !HasFatalFailure()) {
      Step step;
      step.Add(running, static_cast<int>(std::max<int64_t>(running.num_prompt_left(), 1)));
      step.Run(model);
    }
    return running.transcript;
  }

  // Runs the chosen requests in steps of at most chunk_size prompt rows. Who is admitted when, whose rows a step has
  // and in which order, and where a prompt is cut are drawn from `seed`.
  std::vector<Transcript> Together(KvCacheDtype dtype, const std::vector<int>& chosen, int chunk_size,
                                   uint32_t seed) const {
    std::mt19937 random(seed);
    TestModel model = BuildModel(dtype, chunk_size + kRequestsMax, seed);
    std::vector<Running> all(chosen.size());
    size_t num_admitted = 0;
    const auto is_done = [](const Running& running) { return running.is_done(); };
    while (num_admitted < chosen.size() || !std::all_of(all.begin(), all.end(), is_done)) {
      while (num_admitted < chosen.size() && (num_admitted == 0 || random() % 2 == 0)) {
        const Request& request = requests_[chosen[num_admitted]];
        all[num_admitted++] = {.request = &request, .sequence = model.NewSequence(TokensOf(request)), .transcript = {}};
      }
      std::vector<size_t> order(num_admitted);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      Step step;
      int budget = chunk_size;
      for (const size_t i : order) {
        Running& running = all[i];
        if (running.is_done() || random() % 8 == 0) continue;  // a step without it
        if (running.num_prompt_left() <= 0) {
          step.Add(running, 1);
        } else if (budget > 0) {
          int num_rows = static_cast<int>(std::min<int64_t>(running.num_prompt_left(), budget));
          if (random() % 4 == 0) num_rows = 1 + static_cast<int>(random() % num_rows);
          step.Add(running, num_rows);
          budget -= num_rows;
        }
      }
      if (step.num_rows() > 0) step.Run(model);
      if (HasFatalFailure()) return {};
    }
    std::vector<Transcript> transcripts;
    for (Running& running : all) transcripts.push_back(std::move(running.transcript));
    return transcripts;
  }

  void ExpectAsAlone(const std::vector<int>& chosen, int chunk_size, uint32_t seed,
                     KvCacheDtype dtype = KvCacheDtype::kFp8E4m3) {
    SCOPED_TRACE(absl::StrCat("chunks of ", chunk_size, ", ", chosen.size(), " requests, seed ", seed));
    const std::vector<Transcript> together = Together(dtype, chosen, chunk_size, seed);
    ASSERT_EQ(together.size(), chosen.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
      const Transcript& expected = AloneOnce(dtype, chosen[i]);
      EXPECT_EQ(together[i].tokens, expected.tokens) << "request " << chosen[i];
      ASSERT_EQ(together[i].logits.size(), expected.logits.size());
      EXPECT_EQ(std::memcmp(together[i].logits.data(), expected.logits.data(), expected.logits.size() * sizeof(float)),
                0)
          << "request " << chosen[i];
    }
  }

  const std::shared_ptr<const Checkpoint> checkpoint_ = MakeTestCheckpoint("v32-micro", 1);
  const std::vector<Request> requests_ = MakeRequests();
};

TEST_F(BatchInvarianceTest, ALongPromptGivesTheSameBitsInChunksOfAnySize) {
  for (const int chunk_size : kChunkSizes) ExpectAsAlone({kLongest}, chunk_size, 1);
}

TEST_F(BatchInvarianceTest, AFullBatchGivesTheSameBitsForEveryChunkSize) {
  std::vector<int> everyone(kRequestsMax);
  std::iota(everyone.begin(), everyone.end(), 0);
  for (const int chunk_size : kChunkSizes) ExpectAsAlone(everyone, chunk_size, static_cast<uint32_t>(chunk_size));
}

TEST_F(BatchInvarianceTest, AFullBatchWithBf16RecordsGivesTheSameBits) {
  std::vector<int> all_but_the_longest(kLongest);
  std::iota(all_but_the_longest.begin(), all_but_the_longest.end(), 0);
  ExpectAsAlone(all_but_the_longest, 100, 1, KvCacheDtype::kBfloat16);
}

TEST_F(BatchInvarianceTest, AnyMixOfAnySizeGivesTheSameBits) {
  for (uint32_t num_requests = 1; num_requests < kRequestsMax; ++num_requests) {
    std::mt19937 random(100 + num_requests);
    std::vector<int> chosen(kLongest);
    std::iota(chosen.begin(), chosen.end(), 0);
    std::shuffle(chosen.begin(), chosen.end(), random);
    chosen.resize(num_requests);
    ExpectAsAlone(chosen, kChunkSizes[num_requests % 3], random());
  }
}

}  // namespace
}  // namespace tandem::model
