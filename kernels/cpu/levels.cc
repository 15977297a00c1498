#include "kernels/cpu/levels.h"

#include <atomic>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/level.h"

namespace tandem::kernels::cpu {
namespace {

constexpr Level kLevels[] = {Level::kBaseline, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16};

#define TANDEM_LEVEL_OPS(level)                                                               \
  {                                                                                           \
    .linear = level::Linear, .dequantize = level::Dequantize, .sparse_mla = level::SparseMla, \
    .mla_absorb = level::MlaAbsorb, .index_logits = level::IndexLogits, .top_k = level::TopK, \
  }

constexpr LevelOps kOps[] = {
    TANDEM_LEVEL_OPS(baseline),
#if defined(__x86_64__)
    TANDEM_LEVEL_OPS(avx2),
    TANDEM_LEVEL_OPS(avx512),
    TANDEM_LEVEL_OPS(avx512_bf16),
#endif
};

// What the flags of BUILD.bazel allow the compiler to use.
bool MachineHas(Level level) {
  if (level == Level::kBaseline) return true;
#if defined(__x86_64__)
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (level == Level::kAvx2) return has_avx2;
  if (level == Level::kAvx512) return has_avx512;
  return has_avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
#else
  return false;
#endif
}

Level BestLevel() {
  Level best = Level::kBaseline;
  for (Level level : kLevels) best = MachineHas(level) ? level : best;
  return best;
}

std::atomic<Level>& Active() {
  static std::atomic<Level> active = BestLevel();
  return active;
}

}  // namespace

absl::string_view LevelName(Level level) {
  constexpr absl::string_view kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16"};
  return kNames[static_cast<int>(level)];
}

const LevelOps* LevelOpsAt(Level level) { return MachineHas(level) ? &kOps[static_cast<int>(level)] : nullptr; }

absl::Status UseLevel(Level level) {
  if (!MachineHas(level)) {
    return absl::FailedPreconditionError(
        absl::StrCat("this machine lacks the instructions of level ", LevelName(level)));
  }
  Active().store(level);
  return absl::OkStatus();
}

absl::Status UseLevel(absl::string_view name) {
  if (name == "auto") return UseLevel(BestLevel());
  for (Level level : kLevels) {
    if (name == LevelName(level)) return UseLevel(level);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("instruction level ", name, ", allowed auto, baseline, avx2, avx512, avx512_bf16"));
}

Level ActiveLevel() { return Active().load(std::memory_order_relaxed); }
const LevelOps& ActiveLevelOps() { return kOps[static_cast<int>(ActiveLevel())]; }

}  // namespace tandem::kernels::cpu
