// generate: runs one prompt through a checkpoint in one process and prints the generated token ids, one line.
//
//   generate --model_path=DIR --prompt_ids=1,2,3 [--generated_ids=4,5] [--max_new_tokens=16] [--temperature=0]
//            [--top_p=1] [--top_k=0] [--seed=0] [--stop_token_ids=1] [--chunked_prefill_size=512]
//            [--kv_cache_tokens=4096] [--kv_cache_dtype=fp8_e4m3] [--through=engines|model] [--device=cpu|cuda:N]
//
// The oracle of end-to-end tests: a cluster must give these tokens. --prompt_ids=@FILE reads the ids from a file.
// --through=engines runs both workers' engines with a transfer between them, --through=model nothing but the executor
// and the sampler.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"
#include "kvcache/kv_pool.h"
#include "tools/generate/generate.h"
#include "tools/generate/one_process.h"
#include "worker_shell/compute_device.h"
#include "worker_shell/sampling.h"
#include "worker_shell/served_model.h"

namespace tandem::generate {
namespace {

struct Arguments {
  worker_shell::ClusterConfig cluster;
  worker_shell::ComputeDeviceOptions device;
  GenerateInput input;
  int chunked_prefill_size = 512;
  int64_t kv_cache_tokens = 4096;
  bool through_engines = true;
};

absl::StatusOr<std::vector<uint32_t>> ParseIds(absl::string_view text) {
  std::string from_file;
  if (absl::ConsumePrefix(&text, "@")) {
    std::ifstream file{std::string(text)};
    if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", text));
    std::stringstream content;
    content << file.rdbuf();
    from_file = content.str();
    text = from_file;
  }
  std::vector<uint32_t> ids;
  for (const absl::string_view word : absl::StrSplit(text, absl::ByAnyChar(", \n\t"), absl::SkipEmpty())) {
    uint32_t id;
    if (!absl::SimpleAtoi(word, &id)) return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is no token id"));
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<Arguments> ParseArguments(int argc, char** argv) {
  Arguments arguments;
  proto::Sampling& sampling = arguments.input.sampling;
  sampling.set_top_p(1);
  proto::Stopping& stopping = arguments.input.stopping;
  stopping.set_max_new_tokens(16);
  for (int i = 1; i < argc; ++i) {
    const std::pair<absl::string_view, absl::string_view> argument = absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    const auto& [name, value] = argument;
    bool is_understood = true;
    float real = 0;
    int64_t number = 0;
    const auto take_real = [&] { return is_understood = absl::SimpleAtof(value, &real); };
    const auto take_number = [&] { return is_understood = absl::SimpleAtoi(value, &number); };
    if (name == "--model_path") {
      arguments.cluster.model_path = std::string(value);
    } else if (name == "--prompt_ids") {
      ASSIGN_OR_RETURN(arguments.input.prompt_tokens, ParseIds(value));
    } else if (name == "--generated_ids") {
      ASSIGN_OR_RETURN(arguments.input.generated_tokens, ParseIds(value));
    } else if (name == "--stop_token_ids") {
      ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, ParseIds(value));
      stopping.mutable_stop_token_ids()->Add(ids.begin(), ids.end());
    } else if (name == "--temperature") {
      if (take_real()) sampling.set_temperature(real);
    } else if (name == "--top_p") {
      if (take_real()) sampling.set_top_p(real);
    } else if (name == "--top_k") {
      if (take_number()) sampling.set_top_k(static_cast<int32_t>(number));
    } else if (name == "--seed") {
      uint64_t seed = 0;
      is_understood = absl::SimpleAtoi(value, &seed);
      sampling.set_seed(seed);
    } else if (name == "--max_new_tokens") {
      if (take_number()) stopping.set_max_new_tokens(static_cast<uint32_t>(number));
    } else if (name == "--chunked_prefill_size") {
      if (take_number()) arguments.chunked_prefill_size = static_cast<int>(number);
    } else if (name == "--kv_cache_dtype") {
      arguments.cluster.kv_cache_dtype = std::string(value);
    } else if (name == "--device") {
      arguments.device.device = std::string(value);
    } else if (name == "--through") {
      is_understood = value == "engines" || value == "model";
      arguments.through_engines = value == "engines";
    } else if (name == "--kv_cache_tokens") {
      if (take_number()) arguments.kv_cache_tokens = number;
    } else {
      is_understood = false;
    }
    if (!is_understood) return absl::InvalidArgumentError(absl::StrCat("argument not understood: ", argv[i]));
  }
  if (arguments.input.prompt_tokens.empty()) return absl::InvalidArgumentError("--prompt_ids has no token ids");
  if (!arguments.through_engines && !arguments.input.generated_tokens.empty()) {
    return absl::InvalidArgumentError("--generated_ids needs --through=engines");
  }
  if (arguments.chunked_prefill_size < 1 || arguments.kv_cache_tokens < kvcache::kPageTokens) {
    return absl::InvalidArgumentError("--chunked_prefill_size is at least 1, --kv_cache_tokens at least 64");
  }
  return arguments;
}

// A pool and its model.
struct Side {
  std::vector<std::byte> storage;
  std::span<std::byte> bytes;
  std::unique_ptr<model::ModelExecutor> executor;
};

absl::StatusOr<Side> BuildSide(kernels::Backend& backend, const worker_shell::ServedModel& model,
                               const kvcache::KvLayout& layout, int num_rows_max) {
  Side side;
  side.storage.resize(layout.pool_bytes() + kvcache::kPoolAlignment);
  void* base = side.storage.data();
  size_t room = side.storage.size();
  std::align(kvcache::kPoolAlignment, layout.pool_bytes(), base, room);
  side.bytes = {static_cast<std::byte*>(base), static_cast<size_t>(layout.pool_bytes())};
  ASSIGN_OR_RETURN(side.executor, model.BuildExecutor(backend, layout, side.bytes, {.num_rows_max = num_rows_max}));
  return side;
}

absl::StatusOr<std::vector<uint32_t>> RunModel(kernels::Backend& backend, const worker_shell::ServedModel& model,
                                               const kvcache::KvLayout& layout, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Side side, BuildSide(backend, model, layout, arguments.chunked_prefill_size));
  const auto& [prompt_tokens, generated_tokens, sampling, stopping] = arguments.input;
  const std::vector<int32_t> prompt(prompt_tokens.begin(), prompt_tokens.end());
  ASSIGN_OR_RETURN(const Generated generated,
                   Generate(*side.executor, prompt,
                            {.sampling = worker_shell::SamplingFrom(sampling),
                             .max_new_tokens = static_cast<int>(stopping.max_new_tokens()),
                             .chunk_size = arguments.chunked_prefill_size,
                             .min_new_tokens = static_cast<int>(stopping.min_new_tokens()),
                             .stop_token_ids = {stopping.stop_token_ids().begin(), stopping.stop_token_ids().end()}}));
  return std::vector<uint32_t>(generated.tokens.begin(), generated.tokens.end());
}

absl::StatusOr<std::vector<uint32_t>> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto owned, worker_shell::OpenComputeDevice(arguments.device));
  kernels::Backend& backend = *owned;
  ASSIGN_OR_RETURN(const worker_shell::ServedModel model,
                   worker_shell::ServedModel::Open(arguments.cluster, backend.numerics_id()));
  const kvcache::KvLayout layout = model.LayoutFor(arguments.kv_cache_tokens);
  if (!arguments.through_engines) return RunModel(backend, model, layout, arguments);
  const int num_rows_max = std::max(arguments.chunked_prefill_size, kDecodeRowsMax);
  ASSIGN_OR_RETURN(const Side prefill, BuildSide(backend, model, layout, num_rows_max));
  ASSIGN_OR_RETURN(const Side decode, BuildSide(backend, model, layout, num_rows_max));
  ASSIGN_OR_RETURN(const kvcache::KvPool prefill_pool, kvcache::KvPool::Over(prefill.bytes, layout));
  ASSIGN_OR_RETURN(const kvcache::KvPool decode_pool, kvcache::KvPool::Over(decode.bytes, layout));
  OneProcess process({.chunked_prefill_size = arguments.chunked_prefill_size,
                      .context_length_max = std::min(model.context_length(), layout.num_pages * kvcache::kPageTokens)},
                     base::RealClock(), *prefill.executor, prefill_pool, *decode.executor, decode_pool);
  ASSIGN_OR_RETURN(std::vector<GenerateResult> results, process.Generate({arguments.input}));
  return std::move(results.front().tokens);
}

int Main(int argc, char** argv) {
  const auto arguments = ParseArguments(argc, argv);
  if (!arguments.ok()) {
    std::fprintf(stderr, "generate: %s\n", std::string(arguments.status().message()).c_str());
    return 2;
  }
  const auto tokens = Run(*arguments);
  if (!tokens.ok()) {
    std::fprintf(stderr, "generate: %s\n", tokens.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", absl::StrJoin(*tokens, ",").c_str());
  return 0;
}

}  // namespace
}  // namespace tandem::generate

int main(int argc, char** argv) { return tandem::generate::Main(argc, argv); }
