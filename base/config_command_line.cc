// The command line that all services share.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/status_macros.h"

namespace tandem::base {
namespace {

constexpr char kUsage[] =
    "  --config FILE         YAML settings\n"
    "  --set section.name=v  one setting, after the file; may be repeated\n"
    "  --print_config        print the settings in force as YAML and exit\n"
    "  --print_config_docs   print every setting with its meaning as Markdown and exit\n"
    "  --validate_only       check the settings and exit\n"
    "  --help                this text\n";

absl::StatusOr<std::string> ReadFile(const std::string& name) {
  // A folder opens like a file and reads as empty: a wrong mount would go unnoticed.
  std::error_code error;
  if (std::filesystem::is_directory(name, error)) {
    return absl::InvalidArgumentError(absl::StrCat("--config ", name, " is a folder; a file is expected"));
  }
  std::ifstream file(name, std::ios::binary);
  if (!file.is_open()) return absl::NotFoundError(absl::StrCat("cannot read --config file ", name));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return absl::DataLossError(absl::StrCat("--config file ", name, " could not be read to its end"));
  return text;
}

}  // namespace

absl::StatusOr<ConfigArgs> LoadConfig(ConfigSchema& schema, int argc, char** argv) {
  std::string file_name;
  std::vector<std::string> overrides;
  bool print_config = false, print_docs = false, validate_only = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    // Both "--name value" and "--name=value".
    const auto take_value = [&](const char* name, std::string* value) -> absl::StatusOr<bool> {
      if (absl::StartsWith(arg, absl::StrCat(name, "="))) {
        *value = arg.substr(std::string(name).size() + 1);
        return true;
      }
      if (arg != name) return false;
      if (i + 1 >= argc) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
      *value = argv[++i];
      return true;
    };
    std::string value;
    ASSIGN_OR_RETURN(const bool is_config, take_value("--config", &value));
    if (is_config) {
      file_name = value;
      continue;
    }
    ASSIGN_OR_RETURN(const bool is_set, take_value("--set", &value));
    if (is_set) {
      overrides.push_back(value);
    } else if (arg == "--print_config") {
      print_config = true;
    } else if (arg == "--print_config_docs") {
      print_docs = true;
    } else if (arg == "--validate_only") {
      validate_only = true;
    } else if (arg == "--help") {
      std::cout << "usage: " << argv[0] << " [options]\n" << kUsage;
      return ConfigArgs{.should_exit = true};
    } else {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", arg, "\n", kUsage));
    }
  }
  if (print_docs) {
    std::cout << schema.Markdown();
    return ConfigArgs{.should_exit = true};
  }
  std::string yaml;
  if (!file_name.empty()) {
    ASSIGN_OR_RETURN(yaml, ReadFile(file_name));
  }
  RETURN_IF_ERROR(schema.Apply(yaml, file_name, overrides));
  if (print_config) std::cout << schema.Print();
  return ConfigArgs{.should_exit = print_config || validate_only, .is_validation = validate_only};
}

}  // namespace tandem::base
