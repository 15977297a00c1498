// How many long requests fit the device memory of a KV pool with HiSparse and without it, and what throughput they
// have.
//
//   hisparse [--checkpoint=checkpoints/tandem-tiny] [--context=16384] [--tokens=128] [--requests=2]
//            [--device=cpu|cuda:N] [--threads=0] [--with_mtp] [--count_only]
//
// The device memory is that of a pool that holds --requests requests of so much context and generated tokens without
// HiSparse; the ratio of the pools is the one that admits most. Who is admitted is asked of the worker's own scheduler
// and pool sizes. Then as many requests as are admitted run together, through real device buffers of the planned size;
// further ones wait for the first to end, as in a worker. The prompt is computed once and its host pages
// are shared, which no figure here depends on: each request has a device buffer and a continuation of its own.
// A line of JSON a case, on stdout; docs/hisparse.md shows them, plot.py draws them.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "decode_worker/batch_scheduler.h"
#include "decode_worker/hisparse/device_pages.h"
#include "decode_worker/hisparse/pool_sizes.h"
#include "kernels/backend.h"
#include "kvcache/kv_layout.h"
#include "model/checkpoint.h"
#include "model/deepseek_model.h"
#include "worker_shell/compute_device.h"

namespace tandem::bench {
namespace {

constexpr int kChunk = 512;
constexpr int kRunningMax = 4096;

struct Arguments {
  std::string checkpoint = "checkpoints/tandem-tiny";
  int64_t context = 16384;
  int64_t tokens = 128;
  int64_t requests = 2;
  worker_shell::ComputeDeviceOptions device;
  bool with_mtp = false;
  bool count_only = false;
};

absl::StatusOr<Arguments> Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::pair<absl::string_view, absl::string_view> argument = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto& [name, value] = argument;
    bool is_understood = true;
    if (name == "--checkpoint") {
      arguments.checkpoint = std::string(value);
    } else if (name == "--context") {
      is_understood = absl::SimpleAtoi(value, &arguments.context) && arguments.context > 0 &&
                      arguments.context % kvcache::kPageTokens == 0;
    } else if (name == "--tokens") {
      is_understood = absl::SimpleAtoi(value, &arguments.tokens) && arguments.tokens > 0;
    } else if (name == "--requests") {
      is_understood = absl::SimpleAtoi(value, &arguments.requests) && arguments.requests > 0;
    } else if (name == "--threads") {
      is_understood = absl::SimpleAtoi(value, &arguments.device.num_threads) && arguments.device.num_threads >= 0;
    } else if (name == "--device") {
      arguments.device.device = std::string(value);
    } else if (name == "--with_mtp") {
      arguments.with_mtp = true;
    } else if (name == "--count_only") {
      arguments.count_only = true;
    } else {
      is_understood = false;
    }
    if (!is_understood) return absl::InvalidArgumentError(absl::StrCat("argument not understood: ", argv[i]));
  }
  return arguments;
}

// One way of holding requests, and how many are admitted.
struct Mode {
  decode::HiSparseSettings settings;
  decode::PoolSizes sizes;
  int num_admitted = 0;
};

// As the engine asks: requests that will have so many tokens.
int Admitted(const decode::PoolSizes& sizes, int64_t num_tokens) {
  const decode::BatchScheduler scheduler(
      {.num_sequences_max = kRunningMax, .num_rows_max = kRunningMax, .num_kept_pages_max = sizes.num_kept_pages_max});
  const std::vector<decode::Reservation> wanted(
      64 * static_cast<size_t>(sizes.num_tokens / num_tokens + 1),
      {.num_sequences = 1,
       .num_pages = kvcache::PagesForTokens(num_tokens) - 1,  // the scheduler keeps each holder's next one free
       .num_device_pages = decode::DevicePagesFor(num_tokens, sizes.num_kept_pages_max)});
  return scheduler.PlanAdmission({.wanted = wanted,
                                  .num_pages_free = sizes.num_tokens / kvcache::kPageTokens,
                                  .num_device_pages = sizes.num_device_pages});
}

absl::StatusOr<Mode> BestMode(bool is_on, const decode::KvShape& shape, int64_t kv_cache_tokens, int64_t num_tokens) {
  Mode best;
  for (int hundredths = 100; hundredths <= 1000; hundredths += 5) {
    Mode mode{.settings = {.enabled = is_on, .host_to_device_ratio = hundredths / 100.0}};
    const auto sizes = decode::PlanPools(mode.settings, shape, kv_cache_tokens);
    if (!sizes.ok()) {
      if (hundredths == 100) return sizes.status();
      break;
    }
    mode.sizes = *sizes;
    mode.num_admitted = Admitted(mode.sizes, num_tokens);
    if (mode.num_admitted > best.num_admitted) best = mode;
    if (!is_on) break;
  }
  return best;
}

// The model with the prompt in its pool.
class Rig final {
 public:
  Rig(const Arguments& arguments, kernels::Backend& backend, std::shared_ptr<const model::Checkpoint> checkpoint,
      const Mode& mode, int num_running)
      : arguments_(arguments),
        num_prompt_pages_(kvcache::PagesForTokens(arguments.context)),
        num_own_pages_(kvcache::PagesForTokens(arguments.tokens)),
        num_buffer_pages_(decode::DevicePagesFor(arguments.context + arguments.tokens, mode.sizes.num_kept_pages_max)),
        layout_({.num_layers = checkpoint->config().num_hidden_layers,
                 .num_pages = num_prompt_pages_ + int64_t{num_running} * num_own_pages_}),
        pool_(layout_.pool_bytes()),
        backend_(backend),
        checkpoint_(std::move(checkpoint)),
        mode_(mode) {}

  // Computes the prompt without HiSparse, or takes what another rig has computed.
  absl::Status Fill(const Rig* other) {
    if (other != nullptr) {
      for (int layer = 0; layer < layout_.num_layers; ++layer) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          std::copy_n(&other->pool_[other->layout_.PageOffset(kind, layer, 0)],
                      num_prompt_pages_ * layout_.PageBytes(kind), &pool_[layout_.PageOffset(kind, layer, 0)]);
        }
      }
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(const auto model, Build(kChunk, {}, /*writes_back_kv=*/true));
    std::vector<int32_t> pages(num_prompt_pages_), tokens(arguments_.context);
    std::iota(pages.begin(), pages.end(), 0);
    uint32_t random = 1;
    for (int32_t& token : tokens) {
      random = random * 1664525u + 1013904223u;
      token = static_cast<int32_t>((random >> 8) % static_cast<uint32_t>(model->vocab_size()));
    }
    for (int64_t begin = 0; begin < arguments_.context; begin += kChunk) {
      const int count = static_cast<int>(std::min<int64_t>(kChunk, arguments_.context - begin));
      const model::Segment segment{.num_rows = count, .first_position = begin, .page_table = pages};
      RETURN_IF_ERROR(model->Forward(
          {.tokens = absl::MakeConstSpan(tokens).subspan(begin, count), .segments = {&segment, 1}}, [](int) {}, {}));
    }
    return absl::OkStatus();
  }

  // So many requests, as many at a time as are admitted; a line on stdout.
  absl::Status Run(int num_requests) {
    const int num_rows_max = std::min(num_requests, mode_.num_admitted);
    const bool is_on = mode_.settings.enabled;
    ASSIGN_OR_RETURN(
        const auto model,
        Build(num_rows_max, {.num_pages = mode_.sizes.num_device_pages, .num_buffer_pages_max = num_buffer_pages_},
              /*writes_back_kv=*/false));
    std::vector<int32_t> prompt_pages(num_prompt_pages_);
    std::iota(prompt_pages.begin(), prompt_pages.end(), 0);
    RETURN_IF_ERROR(model->PagesArrived(prompt_pages));
    const absl::Duration started = base::RealClock().Now();
    const std::clock_t cpu_started = std::clock();
    uint64_t sum = 0;  // of the tokens: the same with HiSparse and without it
    for (int begin = 0; begin < num_requests; begin += mode_.num_admitted) {
      ASSIGN_OR_RETURN(const uint64_t of_wave,
                       RunTogether(*model, begin, std::min(mode_.num_admitted, num_requests - begin)));
      sum += of_wave;
    }
    const double seconds = absl::ToDoubleSeconds(base::RealClock().Now() - started);
    // Of all threads: what a busy machine does not change.
    const double cpu_seconds = static_cast<double>(std::clock() - cpu_started) / CLOCKS_PER_SEC;
    const int64_t num_tokens = num_requests * arguments_.tokens;
    std::string line = absl::StrCat("{\"hisparse\": ", is_on ? "true" : "false", ", \"requests\": ", num_requests,
                                    ", \"together\": ", num_rows_max, ", \"context\": ", arguments_.context,
                                    ", \"tokens\": ", num_tokens, ", \"tokens_per_s\": ", num_tokens / seconds,
                                    ", \"tokens_per_cpu_s\": ", num_tokens / cpu_seconds, ", \"token_sum\": ", sum);
    if (const model::DeviceBufferCounters* counters = model->device_buffer_counters(); counters != nullptr) {
      int64_t hits = 0, misses = 0;
      for (const auto& layer : counters->layers) {
        hits += layer.hits;
        misses += layer.misses;
      }
      absl::StrAppend(&line, ", \"hit_ratio\": ", static_cast<double>(hits) / static_cast<double>(hits + misses),
                      ", \"swapped_in_bytes_per_token\": ", counters->swapped_in_bytes / num_tokens,
                      ", \"swap_in_share\": ", absl::ToDoubleSeconds(counters->swap_in_time) / seconds);
    }
    std::printf("%s}\n", line.c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::unique_ptr<model::DeepseekModel>> Build(int num_rows_max, model::DeviceBufferOptions buffers,
                                                              bool writes_back_kv) {
    buffers.clock = &base::RealClock();
    return model::DeepseekModel::Create(backend_, checkpoint_, layout_, absl::MakeSpan(pool_),
                                        {.num_rows_max = num_rows_max,
                                         .num_positions_max = arguments_.context + arguments_.tokens,
                                         .writes_back_kv = writes_back_kv,
                                         .device_buffers = buffers});
  }

  // Greedy, each request from a first token of its own.
  absl::StatusOr<uint64_t> RunTogether(model::DeepseekModel& model, int first_request, int count) {
    std::vector<std::vector<int32_t>> pages(count), device_pages(count);
    std::vector<int32_t> tokens(count), rows(count);
    std::vector<model::Segment> segments(count);
    std::vector<float> logits(static_cast<size_t>(count) * model.vocab_size());
    std::iota(rows.begin(), rows.end(), 0);
    for (int i = 0; i < count; ++i) {
      pages[i].resize(num_prompt_pages_ + num_own_pages_);
      std::iota(pages[i].begin(), pages[i].begin() + num_prompt_pages_, 0);
      std::iota(pages[i].begin() + num_prompt_pages_, pages[i].end(), num_prompt_pages_ + i * num_own_pages_);
      device_pages[i].resize(num_buffer_pages_);
      std::iota(device_pages[i].begin(), device_pages[i].end(), i * num_buffer_pages_);
      tokens[i] = 300 + first_request + i;
      if (num_buffer_pages_ > 0) model.ForgetBuffer(device_pages[i][0]);
    }
    uint64_t sum = 0;
    for (int64_t step = 0; step < arguments_.tokens; ++step) {
      for (int i = 0; i < count; ++i) {
        segments[i] = {.row_begin = i,
                       .num_rows = 1,
                       .first_position = arguments_.context + step,
                       .page_table = pages[i],
                       .device_pages = device_pages[i]};
      }
      RETURN_IF_ERROR(model.Forward(
          {.tokens = tokens, .segments = segments, .logits_rows = rows}, [](int) {}, absl::MakeSpan(logits)));
      for (int i = 0; i < count; ++i) {
        const float* row = &logits[static_cast<size_t>(i) * model.vocab_size()];
        tokens[i] = static_cast<int32_t>(std::max_element(row, row + model.vocab_size()) - row);
        sum += static_cast<uint64_t>(tokens[i]);
      }
    }
    return sum;
  }

  const Arguments& arguments_;
  const int num_prompt_pages_, num_own_pages_, num_buffer_pages_;
  const kvcache::KvLayout layout_;
  std::vector<uint8_t> pool_;
  kernels::Backend& backend_;
  const std::shared_ptr<const model::Checkpoint> checkpoint_;
  const Mode mode_;
};

absl::Status Main(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Arguments arguments, Parse(argc, argv));
  ASSIGN_OR_RETURN(const std::shared_ptr<const model::Checkpoint> checkpoint,
                   model::Checkpoint::Open(arguments.checkpoint));
  const model::ModelConfig& config = checkpoint->config();
  const decode::KvShape shape{
      .index_topk = config.index_topk, .num_main_layers = config.num_hidden_layers, .has_mtp = arguments.with_mtp};
  const int64_t num_tokens = arguments.context + arguments.tokens;
  const int64_t kv_cache_tokens = arguments.requests * kvcache::PagesForTokens(num_tokens) * kvcache::kPageTokens;
  ASSIGN_OR_RETURN(const Mode off, BestMode(false, shape, kv_cache_tokens, num_tokens));
  ASSIGN_OR_RETURN(const Mode on, BestMode(true, shape, kv_cache_tokens, num_tokens));
  // Bytes of one request on the device.
  const double num_pages = kvcache::PagesForTokens(num_tokens);
  const double latent = kvcache::LatentPageBytes(shape.kv_cache_dtype), index = kvcache::kIndexPageBytes;
  const double mtp = arguments.with_mtp ? num_pages * (latent + index) : 0;
  const double bytes_off = shape.num_main_layers * num_pages * (latent + index) + mtp;
  const double bytes_on =
      shape.num_main_layers * (num_pages * index + (1 + on.sizes.num_kept_pages_max) * latent) + mtp;
  std::printf(
      "{\"context\": %ld, \"with_mtp\": %s, \"device_bytes\": %ld, \"admitted_off\": %d, \"admitted_on\": %d, "
      "\"ratio\": %.3f, \"byte_formula\": %.3f, \"host_to_device_ratio\": %.2f, \"device_pages\": %ld}\n",
      arguments.context, arguments.with_mtp ? "true" : "false", on.sizes.device_bytes, off.num_admitted,
      on.num_admitted, static_cast<double>(on.num_admitted) / off.num_admitted, bytes_off / bytes_on,
      on.settings.host_to_device_ratio, on.sizes.num_device_pages);
  std::fflush(stdout);
  if (arguments.count_only) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend, worker_shell::OpenComputeDevice(arguments.device));
  Rig plain(arguments, *backend, checkpoint, off, off.num_admitted);
  Rig hisparse(arguments, *backend, checkpoint, on, on.num_admitted);
  RETURN_IF_ERROR(plain.Fill(nullptr));
  RETURN_IF_ERROR(hisparse.Fill(&plain));
  for (int num_requests = 1; num_requests <= on.num_admitted; ++num_requests) {
    RETURN_IF_ERROR(plain.Run(num_requests));
    RETURN_IF_ERROR(hisparse.Run(num_requests));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) {
  const absl::Status status = tandem::bench::Main(argc, argv);
  if (!status.ok()) std::fprintf(stderr, "hisparse: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
