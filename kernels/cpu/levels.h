// Which instruction set level the CPU ops run at: the machine's best, unless the process says otherwise at its start.
// Levels differ in speed alone (docs/kernels/numerics.md). Tested by levels_test.cc.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cpu/level_ops.h"

namespace tandem::kernels::cpu {

enum class Level { kBaseline, kAvx2, kAvx512, kAvx512Bf16 };

// "baseline", "avx2", "avx512", "avx512_bf16".
absl::string_view LevelName(Level level);

// Null where this machine or this build lacks the level.
const LevelOps* LevelOpsAt(Level level);

// All ops from now on run at this level; no op may be running. FAILED_PRECONDITION where the machine lacks it.
absl::Status UseLevel(Level level);
// By name; "auto" is the machine's best. INVALID_ARGUMENT for another name.
absl::Status UseLevel(absl::string_view name);

Level ActiveLevel();
const LevelOps& ActiveLevelOps();

}  // namespace tandem::kernels::cpu
