// Times whole steps of the model, decode or prefill, at given dimensions with weights made from a seed.
//
//   steps [--device=cpu|cuda:N] [--phase=decode|prefill] [--layers=61] [--dense_layers=3] [--experts=256] [--groups=8]
//         [--hidden=7168] [--rows=1,8,64] [--contexts=4096] [--kv_cache_tokens=N] [--kv_cache_dtype=fp8_e4m3]
//         [--runs=20]
//         [--no_recording] [--threads=0]
//
// Dimensions that are not named are DeepSeek-V3.2's. --layers=61 --experts=32 is what one GPU of an 8-way
// expert-parallel node holds; --layers=5 --dense_layers=1 is quick. Decode: `rows` sequences of `context` tokens, one
// row each, all logits. Prefill: one chunk of `rows` tokens that ends at `context`, logits of the last row, records
// written back. KV pages hold random records; sequences share pages where the pool does not hold them all, which is
// printed. A line per case: the median of the runs' times after a warm-up, their spread, tokens a second.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "kernels/backend.h"
#include "kernels/dtypes.h"
#include "kvcache/kv_layout.h"
#include "model/deepseek_model.h"
#include "model/dummy_weights.h"
#include "worker_shell/compute_device.h"

namespace tandem::bench {
namespace {

struct Arguments {
  worker_shell::ComputeDeviceOptions device;
  bool is_prefill = false;
  model::ModelConfig config;
  std::vector<int64_t> rows = {1, 8, 64};
  std::vector<int64_t> contexts = {4096};
  int64_t kv_cache_tokens = 0;  // 0: what the largest case needs
  kvcache::KvCacheDtype kv_cache_dtype = kvcache::KvCacheDtype::kFp8E4m3;
  int runs = 20;
  bool records_steps = true;
};

model::ModelConfig DeepseekV32() {
  model::ModelConfig config;
  config.vocab_size = 129280;
  config.hidden_size = 7168;
  config.num_hidden_layers = 61;
  config.first_k_dense_replace = 3;
  config.intermediate_size = 18432;
  config.moe_intermediate_size = 2048;
  config.n_routed_experts = 256;
  config.n_shared_experts = 1;
  config.num_experts_per_tok = 8;
  config.n_group = 8;
  config.topk_group = 4;
  config.routed_scaling_factor = 2.5f;
  config.num_attention_heads = 128;
  config.q_lora_rank = 1536;
  config.kv_lora_rank = 512;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.v_head_dim = 128;
  config.index_n_heads = 64;
  config.index_head_dim = 128;
  config.index_topk = 2048;
  config.max_position_embeddings = 163840;
  config.mscale_all_dim = 1;
  config.has_fp8_weights = true;
  return config;
}

bool ParseNumbers(absl::string_view text, std::vector<int64_t>& numbers) {
  numbers.clear();
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int64_t number;
    if (!absl::SimpleAtoi(word, &number) || number < 1) return false;
    numbers.push_back(number);
  }
  return true;
}

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments{.config = DeepseekV32()};
  for (int i = 1; i < argc; ++i) {
    const std::pair<absl::string_view, absl::string_view> argument = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto& [name, value] = argument;
    model::ModelConfig& config = arguments.config;
    const auto take = [value = value](int& number) { return absl::SimpleAtoi(value, &number) && number > 0; };
    bool is_understood = true;
    if (name == "--device") {
      arguments.device.device = std::string(value);
    } else if (name == "--phase") {
      is_understood = value == "decode" || value == "prefill";
      arguments.is_prefill = value == "prefill";
    } else if (name == "--layers") {
      is_understood = take(config.num_hidden_layers);
    } else if (name == "--dense_layers") {
      is_understood = absl::SimpleAtoi(value, &config.first_k_dense_replace) && config.first_k_dense_replace >= 0;
    } else if (name == "--experts") {
      is_understood = take(config.n_routed_experts);
    } else if (name == "--groups") {
      is_understood = take(config.n_group);
      config.topk_group = std::min(config.topk_group, config.n_group);
    } else if (name == "--hidden") {
      is_understood = take(config.hidden_size);
    } else if (name == "--rows") {
      is_understood = ParseNumbers(value, arguments.rows);
    } else if (name == "--contexts") {
      is_understood = ParseNumbers(value, arguments.contexts);
    } else if (name == "--kv_cache_tokens") {
      is_understood = absl::SimpleAtoi(value, &arguments.kv_cache_tokens) && arguments.kv_cache_tokens >= 64;
    } else if (name == "--kv_cache_dtype") {
      const auto dtype = kvcache::KvCacheDtypeOf(value);
      is_understood = dtype.has_value();
      if (is_understood) arguments.kv_cache_dtype = *dtype;
    } else if (name == "--runs") {
      is_understood = take(arguments.runs);
    } else if (name == "--threads") {
      is_understood = absl::SimpleAtoi(value, &arguments.device.num_threads);
    } else if (name == "--no_recording") {
      arguments.records_steps = false;
    } else {
      is_understood = false;
    }
    if (!is_understood) return absl::InvalidArgumentError(absl::StrCat("argument not understood: ", argv[i]));
  }
  for (const int64_t context : arguments.contexts) {
    if (context > arguments.config.max_position_embeddings) {
      return absl::InvalidArgumentError(
          absl::StrCat("--contexts: ", context, ", at most ", arguments.config.max_position_embeddings));
    }
    for (const int64_t rows : arguments.rows) {
      if (arguments.is_prefill && rows > context) {
        return absl::InvalidArgumentError(absl::StrCat("--rows: ", rows, " tokens do not end at context ", context));
      }
    }
  }
  return arguments;
}

// Zeroed memory, committed as it is touched.
class HostPool final {
 public:
  static absl::StatusOr<HostPool> Map(int64_t num_bytes) {
    void* base = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return absl::ResourceExhaustedError(absl::StrCat("cannot map ", num_bytes, " bytes"));
    return HostPool({static_cast<uint8_t*>(base), static_cast<size_t>(num_bytes)});
  }
  HostPool(HostPool&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ~HostPool() {
    if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  }
  absl::Span<uint8_t> bytes() const { return bytes_; }

 private:
  explicit HostPool(absl::Span<uint8_t> bytes) : bytes_(bytes) {}
  absl::Span<uint8_t> bytes_;
};

// One page of each kind that holds values as a model writes them.
struct RandomPages {
  std::vector<uint8_t> latent, index;
};
RandomPages MakeRandomPages(kvcache::KvCacheDtype dtype) {
  uint64_t state = 20261201;
  const auto uniform = [&] {  // [-1, 1)
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
  };
  const auto put = [](std::vector<uint8_t>& bytes, size_t at, auto value) {
    std::memcpy(&bytes[at], &value, sizeof(value));
  };
  RandomPages pages{std::vector<uint8_t>(kvcache::LatentPageBytes(dtype)),
                    std::vector<uint8_t>(kvcache::kIndexPageBytes)};
  for (int slot = 0; slot < kvcache::kPageTokens; ++slot) {
    const size_t record = static_cast<size_t>(slot) * kvcache::LatentRecordBytes(dtype);
    for (int i = 0; i < kvcache::kLatentDim; ++i) {
      if (dtype == kvcache::KvCacheDtype::kFp8E4m3) {
        pages.latent[record + i] = kernels::ToE4m3(uniform() * 448).bits;
      } else {
        put(pages.latent, record + i * 2, kernels::ToBf16(uniform()));
      }
    }
    if (dtype == kvcache::KvCacheDtype::kFp8E4m3) {
      for (int tile = 0; tile < kvcache::kLatentDim / kvcache::kLatentTile; ++tile) {
        put(pages.latent, record + kvcache::kLatentScaleOffset + tile * 4, 0x1p-8f);
      }
    }
    for (int i = 0; i < kvcache::kRopeDim; ++i) {
      put(pages.latent, record + kvcache::LatentRopeOffset(dtype) + i * 2, kernels::ToBf16(uniform()));
    }
    for (int i = 0; i < kvcache::kIndexDim; ++i) {
      pages.index[slot * kvcache::kIndexDim + i] = kernels::ToE4m3(uniform() * 448).bits;
    }
    put(pages.index, kvcache::kIndexScaleOffset + slot * 4, 0x1p-8f * (1 + 0.5f * uniform()));
  }
  return pages;
}

// Every page of every layer, each turned by another number of slots so that no two tokens are one.
absl::Status FillPool(model::DeepseekModel& model, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool) {
  const RandomPages random = MakeRandomPages(layout.kv_cache_dtype);
  std::vector<int32_t> pages(layout.num_pages);
  for (int64_t page = 0; page < layout.num_pages; ++page) {
    pages[page] = static_cast<int32_t>(page);
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      const size_t turn = (page * 7 + layer * 13) % kvcache::kPageTokens;
      const size_t record = kvcache::LatentRecordBytes(layout.kv_cache_dtype);
      uint8_t* latent = &pool[layout.LatentOffset(layer, page)];
      std::copy(random.latent.begin() + turn * record, random.latent.end(), latent);
      std::copy_n(random.latent.begin(), turn * record, latent + random.latent.size() - turn * record);
      std::copy(random.index.begin(), random.index.end(), &pool[layout.IndexOffset(layer, page)]);
    }
  }
  return model.PagesArrived(pages);
}

struct Case {
  int64_t rows = 0;
  int64_t context = 0;
};

struct Times {
  double median = 0, least = 0, most = 0;  // seconds
};

absl::StatusOr<Times> TimeCase(model::DeepseekModel& model, const Arguments& arguments, int64_t num_pages,
                               const Case& c) {
  const int num_sequences = arguments.is_prefill ? 1 : static_cast<int>(c.rows);
  const int pages_each = kvcache::PagesForTokens(c.context);
  std::vector<std::vector<int32_t>> tables(num_sequences, std::vector<int32_t>(pages_each));
  int64_t next = 0;
  for (auto& table : tables) {
    for (int32_t& page : table) page = static_cast<int32_t>(next++ % num_pages);
  }
  std::vector<int32_t> tokens(c.rows), logits_rows;
  std::vector<model::Segment> segments;
  for (int64_t row = 0; row < c.rows; ++row) {
    tokens[row] = static_cast<int32_t>((row * 7919 + 17) % arguments.config.vocab_size);
    if (arguments.is_prefill && row + 1 < c.rows) continue;
    logits_rows.push_back(static_cast<int32_t>(row));
    if (arguments.is_prefill) continue;
    segments.push_back({.row_begin = static_cast<int>(row),
                        .num_rows = 1,
                        .first_position = c.context - 1,
                        .page_table = tables[row]});
  }
  if (arguments.is_prefill) {
    segments.push_back({.row_begin = 0,
                        .num_rows = static_cast<int>(c.rows),
                        .first_position = c.context - c.rows,
                        .page_table = tables[0]});
  }
  std::vector<float> logits(logits_rows.size() * arguments.config.vocab_size);
  const absl::Span<std::byte> logits_bytes(reinterpret_cast<std::byte*>(logits.data()), logits.size() * sizeof(float));
  RETURN_IF_ERROR(model.PinHostMemory(logits_bytes));  // as the decode worker does
  const auto unpin = absl::MakeCleanup([&] { model.UnpinHostMemory(logits_bytes); });
  std::vector<double> seconds;
  const int warm_up_runs = arguments.is_prefill ? 1 : 3;  // the first runs a shape, the second records it
  const base::Clock& clock = base::RealClock();
  for (int run = 0; run < warm_up_runs + arguments.runs; ++run) {
    const absl::Duration begin = clock.Now();
    RETURN_IF_ERROR(model.Forward(
        {.tokens = tokens, .segments = segments, .logits_rows = logits_rows}, [](int) {}, absl::MakeSpan(logits)));
    if (run >= warm_up_runs) seconds.push_back(absl::ToDoubleSeconds(clock.Now() - begin));
  }
  std::sort(seconds.begin(), seconds.end());
  return Times{.median = seconds[seconds.size() / 2], .least = seconds.front(), .most = seconds.back()};
}

absl::Status Run(const Arguments& arguments) {
  const model::ModelConfig& config = arguments.config;
  const int64_t rows_max = *std::max_element(arguments.rows.begin(), arguments.rows.end());
  const int64_t context_max = *std::max_element(arguments.contexts.begin(), arguments.contexts.end());
  const int64_t tokens_wanted = context_max * (arguments.is_prefill ? 1 : rows_max);
  const int64_t kv_tokens = arguments.kv_cache_tokens > 0 ? arguments.kv_cache_tokens : tokens_wanted;
  const kvcache::KvLayout layout{.num_layers = config.num_hidden_layers,
                                 .num_pages = kvcache::PagesForTokens(kv_tokens),
                                 .kv_cache_dtype = arguments.kv_cache_dtype};
  ASSIGN_OR_RETURN(const auto backend, worker_shell::OpenComputeDevice(arguments.device));
  const base::Clock& clock = base::RealClock();
  const absl::Duration begin = clock.Now();
  ASSIGN_OR_RETURN(auto weights, model::MakeDummyWeights(*backend, config, /*with_mtp=*/false, /*seed=*/1));
  const int64_t weight_bytes = weights->copies.num_bytes();
  ASSIGN_OR_RETURN(const HostPool pool, HostPool::Map(layout.pool_bytes()));
  ASSIGN_OR_RETURN(const auto model, model::DeepseekModel::Create(*backend, std::move(weights), layout, pool.bytes(),
                                                                  {.num_rows_max = static_cast<int>(rows_max),
                                                                   .num_positions_max = context_max,
                                                                   .writes_back_kv = arguments.is_prefill,
                                                                   .records_steps = arguments.records_steps}));
  const absl::Duration made = clock.Now();
  RETURN_IF_ERROR(FillPool(*model, layout, pool.bytes()));
  std::printf(
      "%s, %s: %d layers (%d dense), %d experts, hidden %d; weights %.2f GiB, KV pool %.2f GiB (%lld tokens); "
      "made in %.1f s, filled in %.1f s\n",
      std::string(backend->name()).c_str(), arguments.is_prefill ? "prefill" : "decode", config.num_hidden_layers,
      config.first_k_dense_replace, config.n_routed_experts, config.hidden_size,
      static_cast<double>(weight_bytes) * 0x1p-30, static_cast<double>(layout.pool_bytes()) * 0x1p-30,
      static_cast<long long>(layout.num_pages * kvcache::kPageTokens), absl::ToDoubleSeconds(made - begin),
      absl::ToDoubleSeconds(clock.Now() - made));
  std::printf("%8s %9s %12s %10s %10s %12s  %s\n", "rows", "context", "median ms", "least", "most", "tokens/s",
              "pages");
  for (const int64_t context : arguments.contexts) {
    for (const int64_t rows : arguments.rows) {
      const int64_t wanted = int64_t{kvcache::PagesForTokens(context)} * (arguments.is_prefill ? 1 : rows);
      ASSIGN_OR_RETURN(const Times times, TimeCase(*model, arguments, layout.num_pages, {rows, context}));
      std::printf("%8lld %9lld %12.3f %10.3f %10.3f %12.1f  %s\n", static_cast<long long>(rows),
                  static_cast<long long>(context), times.median * 1e3, times.least * 1e3, times.most * 1e3,
                  static_cast<double>(rows) / times.median, wanted > layout.num_pages ? "shared" : "own");
      std::fflush(stdout);
    }
  }
  std::printf("NaN index logits: %lld\n", static_cast<long long>(model->num_nan_index_logits()));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const absl::StatusOr<Arguments> arguments = Parse(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "steps: %s\n", std::string(arguments.status().message()).c_str());
    return 2;
  }
  const absl::Status status = Run(*arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "steps: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) { return tandem::bench::Main(argc, argv); }
