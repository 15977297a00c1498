// Input: a configuration file. Whatever it is, it is taken or refused with words; what was taken, printed and read
// again, is the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/config.h"

namespace {

struct Config {
  std::string path = "model";
  std::string choice = "one";
  int size = 1;
  int64_t tokens = 1;
  double share = 0.5;
  bool is_on = false;
  std::vector<std::string> names;
  absl::Duration timeout = absl::Seconds(1);
};

void Define(tandem::base::ConfigSchema& schema, Config& config) {
  schema.String("cluster.path", &config.path, "A text.");
  schema.Choice("process.choice", &config.choice, {"one", "two"}, "One of two.");
  schema.Int("process.size", &config.size, {.unit = "bytes", .min = -5, .max = 100}, "A number.");
  schema.Int64("process.pool.tokens", &config.tokens, {.unit = "tokens", .min = 1, .max = int64_t{1} << 40},
               "Another.");
  schema.Double("process.pool.share", &config.share, {.unit = "", .min = 0, .max = 1}, "A fraction.");
  schema.Bool("process.is_on", &config.is_on, "A switch.");
  schema.StringList("process.names", &config.names, "Texts.");
  schema.Duration("process.timeout", &config.timeout, absl::ZeroDuration(), absl::Hours(1), "A time.");
}

void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size > 16384) return 0;
  Config config, again;
  tandem::base::ConfigSchema schema("service"), other("service");
  Define(schema, config);
  Define(other, again);
  const absl::Status status = schema.Apply(std::string(reinterpret_cast<const char*>(bytes), size), "fuzzed.yaml", {});
  if (!status.ok()) {
    Require(status.code() == absl::StatusCode::kInvalidArgument && !status.message().empty());
    return 0;
  }
  Require(config.size >= -5 && config.size <= 100 && config.tokens >= 1 && config.share >= 0 && config.share <= 1);
  Require(config.choice == "one" || config.choice == "two");
  Require(config.timeout >= absl::ZeroDuration() && config.timeout <= absl::Hours(1));
  Require(other.Apply(schema.Print(), "printed.yaml", {}).ok());
  Require(other.Print() == schema.Print());
  Require(again.path == config.path && again.names == config.names && again.timeout == config.timeout);
  return 0;
}
