// Runs a fuzz target under plain `bazel test`: over every file of its corpus, so that what a fuzzer once found stays
// found, and over fixed mutations of those files, so that small changes meet odd input before any fuzzer runs.
// Linked into each tandem_fuzz_test by bazel/fuzz.bzl.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size);

namespace {

constexpr int kNumMutationsPerFile = 300;

std::vector<std::string> ReadCorpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TANDEM_FUZZ_CORPUS)) {
    if (std::filesystem::is_regular_file(entry.path())) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

void Feed(const std::string& input) {
  // An exact copy on the heap, so that a sanitizer sees one byte too many.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string Mutate(const std::string& input, const std::string& other, std::mt19937* generator) {
  const auto below = [generator](size_t bound) { return static_cast<size_t>((*generator)() % bound); };
  std::string mutated = input;
  for (size_t change = 1 + below(4); change > 0; --change) {
    const size_t at = below(mutated.size() + 1);
    switch (below(5)) {
      case 0:
        mutated.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 1:
        mutated.erase(at, 1 + below(8));
        break;
      case 2:
        if (at < mutated.size()) mutated[at] = static_cast<char>(mutated[at] ^ 1 << below(8));
        break;
      case 3:
        mutated.insert(at, mutated, below(mutated.size() + 1), 1 + below(16));
        break;
      case 4:
        mutated = mutated.substr(0, at) + other.substr(below(other.size() + 1));
        break;
    }
  }
  return mutated;
}

TEST(FuzzReplay, CorpusIsNotEmpty) { EXPECT_FALSE(ReadCorpus().empty()) << TANDEM_FUZZ_CORPUS; }

TEST(FuzzReplay, EveryFileOfTheCorpusPasses) {
  Feed("");
  for (const std::string& input : ReadCorpus()) Feed(input);
}

TEST(FuzzReplay, FixedMutationsOfTheCorpusPass) {
  std::mt19937 generator(20240117);  // any constant: the same inputs on every machine
  const std::vector<std::string> corpus = ReadCorpus();
  for (const std::string& input : corpus) {
    for (int i = 0; i < kNumMutationsPerFile; ++i) {
      Feed(Mutate(input, corpus[generator() % corpus.size()], &generator));
    }
  }
}

}  // namespace
