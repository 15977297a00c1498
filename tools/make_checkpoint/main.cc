// make_checkpoint --config v32-tiny|v32-tiny-calm|v32-micro --seed N --out DIR [--shards K]
//
// Writes a checkpoint of random weights: the architecture of DeepSeek-V3.2 at a size for a CPU.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tools/make_checkpoint/checkpoint_writer.h"

ABSL_FLAG(std::string, config, "", "v32-tiny, v32-tiny-calm or v32-micro");
ABSL_FLAG(uint64_t, seed, 1, "the same seed gives the same bytes");
ABSL_FLAG(std::string, out, "", "folder to make; must not hold anything yet");
ABSL_FLAG(int, shards, 2, "number of safetensors files, 1 to 999");

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "make_checkpoint --config v32-tiny|v32-tiny-calm|v32-micro --seed N --out DIR [--shards K]");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  const std::string folder = absl::GetFlag(FLAGS_out);
  if (rest.size() != 1 || folder.empty() || absl::GetFlag(FLAGS_config).empty()) {
    std::fprintf(stderr,
                 "usage: make_checkpoint --config v32-tiny|v32-tiny-calm|v32-micro --seed N --out DIR [--shards K]\n");
    return 2;
  }
  const absl::Status status = tandem::make_checkpoint::WriteCheckpoint({.config_name = absl::GetFlag(FLAGS_config),
                                                                        .seed = absl::GetFlag(FLAGS_seed),
                                                                        .folder = folder,
                                                                        .num_shards = absl::GetFlag(FLAGS_shards)});
  if (!status.ok()) {
    std::fprintf(stderr, "make_checkpoint: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
