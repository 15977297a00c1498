#include "kvtransfer/fault_spec.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace tandem::kvtransfer {
namespace {

constexpr std::array<std::pair<Fault, std::string_view>, 8> kNames = {{
    {Fault::kNone, "none"},
    {Fault::kDrop, "drop"},
    {Fault::kFail, "fail"},
    {Fault::kDelay, "delay"},
    {Fault::kReorder, "reorder"},
    {Fault::kDuplicate, "duplicate"},
    {Fault::kCorrupt, "corrupt"},
    {Fault::kStall, "stall"},
}};

std::optional<Fault> FaultNamed(std::string_view name) {
  for (const auto& [fault, fault_name] : kNames) {
    if (fault_name == name) return fault;
  }
  return std::nullopt;
}

// SplitMix64: independent draws for each (seed, index, purpose).
uint64_t Draw(uint64_t seed, uint64_t index, uint64_t purpose) {
  uint64_t x = seed + 0x9e3779b97f4a7c15 * (2 * index + purpose + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

absl::Status ParseScript(const std::string& value, FaultSpec& spec) {
  const std::pair<std::string, std::string> entry = absl::StrSplit(value, absl::MaxSplits(':', 1));
  uint64_t index = 0;
  const std::optional<Fault> fault = FaultNamed(entry.second);
  if (!absl::SimpleAtoi(entry.first, &index) || !fault) {
    return absl::InvalidArgumentError(absl::StrCat("fault spec: at=", value, ": want at=NUMBER:FAULT"));
  }
  spec.script[index] = *fault;
  return absl::OkStatus();
}

absl::Status ParsePart(const std::string& key, const std::string& value, FaultSpec& spec) {
  if (key == "at") return ParseScript(value, spec);
  if (key == "seed") {
    if (absl::SimpleAtoi(value, &spec.seed)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("fault spec: seed=", value, ": not a number"));
  }
  if (key == "delay_time") {
    if (absl::ParseDuration(value, &spec.delay_time) && spec.delay_time >= absl::ZeroDuration() &&
        spec.delay_time <= absl::Hours(1)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("fault spec: delay_time=", value, ": want a duration of 0 to 1h"));
  }
  const std::optional<Fault> fault = FaultNamed(key);
  if (!fault || *fault == Fault::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("fault spec: ", key,
                     ": unknown; want seed, delay_time, at, drop, fail, delay, reorder, duplicate, corrupt or stall"));
  }
  double probability = 0;
  if (!absl::SimpleAtod(value, &probability) || !(probability >= 0 && probability <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("fault spec: ", key, "=", value, ": want a probability of 0 to 1"));
  }
  spec.probability[*fault] = probability;
  return absl::OkStatus();
}

}  // namespace

std::string_view FaultName(Fault fault) { return kNames[static_cast<size_t>(fault)].second; }

Fault FaultSpec::FaultOf(uint64_t index) const {
  const auto scripted = script.find(index);
  if (scripted != script.end()) return scripted->second;
  double rest = static_cast<double>(Draw(seed, index, 0) >> 11) * 0x1p-53;
  for (const auto& [fault, share] : probability) {
    if (rest < share) return fault;
    rest -= share;
  }
  return Fault::kNone;
}

uint64_t FaultSpec::Pick(uint64_t index, uint64_t num_choices) const { return Draw(seed, index, 1) % num_choices; }

absl::StatusOr<FaultSpec> ParseFaultSpec(std::string_view text) {
  FaultSpec spec;
  for (const auto part : absl::StrSplit(std::string(text), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(part, absl::MaxSplits('=', 1));
    RETURN_IF_ERROR(ParsePart(field.first, field.second, spec));
  }
  double total = 0;
  for (const auto& [fault, share] : spec.probability) total += share;
  if (total > 1) {
    return absl::InvalidArgumentError(absl::StrCat("fault spec: probabilities add up to ", total, ", limit 1"));
  }
  return spec;
}

}  // namespace tandem::kvtransfer
