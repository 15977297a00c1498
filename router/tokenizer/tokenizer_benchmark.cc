// Speed of encoding and decoding on one thread with the real vocabulary, and the time to load it.
// bazel run -c opt //router/tokenizer:tokenizer_benchmark; needs the reference files (TANDEM_SHARED_DIR). A text has at
// least so many bytes: 1 is the file as it is. tools/bench/tokenizer_peers.py times other tokenizers on the same texts.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>

#include "router/tokenizer/incremental_detokenizer.h"
#include "router/tokenizer/reference_files.h"
#include "router/tokenizer/tokenizer.h"

namespace tandem::router {
namespace {

constexpr char kVocabulary[] = "data/tokenizer/deepseek-v3-base/tokenizer.json";

std::string Require(const std::optional<std::string>& found, const char* name) {
  if (!found.has_value()) {
    std::fprintf(stderr, "%s is not at hand: set TANDEM_SHARED_DIR\n", name);
    std::exit(1);
  }
  return *found;
}

const Tokenizer& RealTokenizer() {
  static const Tokenizer* const kTokenizer = [] {
    absl::StatusOr<std::unique_ptr<const Tokenizer>> tokenizer =
        Tokenizer::Load(Require(FindReferenceFile(kVocabulary), kVocabulary));
    if (!tokenizer.ok()) {
      std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
      std::exit(1);
    }
    return tokenizer->release();
  }();
  return *kTokenizer;
}

std::string Repeat(const std::string& unit, size_t num_bytes) {
  std::string text;
  while (text.size() < num_bytes) text += unit;
  return text;
}

constexpr int64_t kMegabyte = 1 << 20;

// English with search results; a JSON conversation with Chinese; one letter without end.
std::string TextOfKind(int64_t kind, size_t num_bytes = kMegabyte) {
  switch (kind) {
    case 0:
      return Repeat(Require(ReadReferenceFile("data/chat/test_output_search_wo_date.txt"), "English"), num_bytes);
    case 1:
      return Repeat(Require(ReadReferenceFile("data/chat/test_input.json"), "JSON"), num_bytes);
    default:
      return Repeat("a", num_bytes);
  }
}

void BM_Encode(benchmark::State& state) {
  const std::string text = TextOfKind(state.range(0), static_cast<size_t>(state.range(1)));
  const Tokenizer& tokenizer = RealTokenizer();
  for (auto _ : state) {
    absl::StatusOr<std::vector<TokenId>> ids = tokenizer.Encode(text, Tokenizer::AddedTokens::kMatch);
    benchmark::DoNotOptimize(ids);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}
BENCHMARK(BM_Encode)->ArgNames({"kind", "bytes"})->ArgsProduct({{0, 1}, {1, kMegabyte}})->Args({2, kMegabyte});

void BM_DecodeTokenByToken(benchmark::State& state) {
  const std::string text = TextOfKind(state.range(0));
  const absl::StatusOr<std::vector<TokenId>> ids = RealTokenizer().Encode(text, Tokenizer::AddedTokens::kMatch);
  for (auto _ : state) {
    IncrementalDetokenizer detokenizer(RealTokenizer());
    std::string delta;
    for (const TokenId id : *ids) {
      delta.clear();
      detokenizer.Append({id}, &delta);
      benchmark::DoNotOptimize(delta);
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids->size()));
}
BENCHMARK(BM_DecodeTokenByToken)->ArgName("kind")->Arg(0)->Arg(1);

void BM_Load(benchmark::State& state) {
  const std::string file = Require(ReadReferenceFile(kVocabulary), kVocabulary);
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::Parse(file));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tandem::router

BENCHMARK_MAIN();
