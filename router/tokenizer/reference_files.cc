#include "router/tokenizer/reference_files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace tandem::router {

std::optional<std::string> FindReferenceFile(const std::string& name) {
  std::filesystem::path folder;
  if (const char* shared = std::getenv("TANDEM_SHARED_DIR")) {
    folder = shared;
  } else {
    // Tests run among links to the source tree: this file's own is followed to find the tree.
    std::error_code error;
    const std::filesystem::path source = std::filesystem::canonical("router/tokenizer/reference_files.cc", error);
    if (error) return std::nullopt;
    folder = source.parent_path() / "../../../shared";
  }
  std::error_code error;
  const std::filesystem::path path = folder / name;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return path.string();
}

std::optional<std::string> ReadReferenceFile(const std::string& name) {
  const std::optional<std::string> path = FindReferenceFile(name);
  if (!path.has_value()) return std::nullopt;
  std::ifstream file(*path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

}  // namespace tandem::router
