#include "worker_shell/memory_room.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tandem::worker_shell {
namespace {

// A file of one number. None where there is no such file or it says "max".
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t number;
  if (!(file >> word) || !absl::SimpleAtoi(word, &number)) return std::nullopt;
  return number;
}

// A file of lines "name number ...".
std::optional<int64_t> ReadField(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line, word; std::getline(file, line);) {
    if (line.rfind(name + " ", 0) != 0) continue;
    const size_t first = line.find_first_not_of(' ', name.size());
    int64_t number;
    if (first == std::string::npos) return std::nullopt;
    if (!absl::SimpleAtoi(line.substr(first, line.find(' ', first) - first), &number)) return std::nullopt;
    return number;
  }
  return std::nullopt;
}

std::optional<int64_t> LeftByControlGroup(const std::string& limit_path, const std::string& usage_path,
                                          const std::string& stat_path, const std::string& droppable_field) {
  const std::optional<int64_t> limit = ReadNumber(limit_path);
  const std::optional<int64_t> usage = ReadNumber(usage_path);
  if (!limit.has_value() || !usage.has_value()) return std::nullopt;
  const int64_t droppable = ReadField(stat_path, droppable_field).value_or(0);
  return std::max<int64_t>(0, *limit - (*usage - droppable));
}

}  // namespace

absl::StatusOr<int64_t> AvailableMemoryBytes(const std::string& root) {
  const std::string path = root + "proc/meminfo";
  const std::optional<int64_t> kilobytes = ReadField(path, "MemAvailable:");
  if (!kilobytes.has_value()) {
    return absl::UnavailableError(absl::StrCat(path, " names no MemAvailable: room for the KV pool stays unknown"));
  }
  int64_t available = *kilobytes * 1024;
  const std::string group = root + "sys/fs/cgroup/";
  for (const std::optional<int64_t>& left :
       {LeftByControlGroup(group + "memory.max", group + "memory.current", group + "memory.stat", "inactive_file"),
        LeftByControlGroup(group + "memory/memory.limit_in_bytes", group + "memory/memory.usage_in_bytes",
                           group + "memory/memory.stat", "total_inactive_file")}) {
    if (left.has_value()) available = std::min(available, *left);
  }
  return available;
}

absl::Status CheckRoomForPool(int64_t kv_cache_tokens, int64_t pool_bytes, int64_t available_bytes,
                              const std::string& setting) {
  if (pool_bytes <= available_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(setting, " ", kv_cache_tokens, " needs ", pool_bytes,
                                                   " bytes of memory, ", available_bytes, " are available"));
}

}  // namespace tandem::worker_shell
