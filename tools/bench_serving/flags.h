// The command line: the flags of SGLang's bench_serving that mean something here, by the same names, and a few of ours.
//
// "--name value" and "--name=value"; a flag of several values takes words up to the next flag. What is not offered is
// refused by name: a benchmark whose flag was silently ignored has measured something else. Tested by flags_test.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tools/bench_serving/goodput.h"

namespace tandem::bench_serving {

enum class Backend { kGenerate, kCompletions, kChat };

enum class Dataset { kSharegpt, kRandom, kRandomIds, kSharedPrefix, kCustom, kOpenai };

struct Flags {
  std::string backend_name = "sglang";  // as given
  Backend backend = Backend::kGenerate;
  std::string base_url;  // "" = http://host:port
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string model;              // "" = the first of /v1/models
  std::string served_model_name;  // in requests, where it is not `model`
  std::string tokenizer;          // folder or tokenizer.json; "" = the model's folder, where it is on this machine
  std::vector<std::pair<std::string, std::string>> headers;

  std::string dataset_name = "sharegpt";
  Dataset dataset = Dataset::kSharegpt;
  std::string dataset_path;
  int num_prompts = 1000;
  int random_input_len = 1024;
  int random_output_len = 1024;
  double random_range_ratio = 0;
  int sharegpt_output_len = 0;   // 0 = as long as the file's answers
  int sharegpt_context_len = 0;  // 0 = no bound
  int gsp_num_groups = 64;
  int gsp_prompts_per_group = 16;
  int gsp_system_prompt_len = 2048;
  int gsp_question_len = 128;
  int gsp_output_len = 256;
  bool tokenize_prompt = false;
  std::string prompt_suffix;
  uint64_t seed = 42;

  double request_rate = std::numeric_limits<double>::infinity();  // a second
  int max_concurrency = 0;                                        // 0 = no bound
  int warmup_requests = 1;
  bool flush_cache = false;
  absl::Duration ready_check_timeout = absl::Minutes(1);
  absl::Duration request_timeout = absl::Hours(6);

  bool disable_stream = false;
  bool disable_ignore_eos = false;
  bool return_logprob = false;
  double temperature = 0;
  double top_p = 1;
  std::string extra_request_body = "{}";  // a JSON object

  GoodputLimits goodput;
  std::string output_file;  // "" = a name made of the run
  bool output_details = false;
  bool disable_tqdm = false;
  std::string tag;

  bool wants_help = false;
};

// INVALID_ARGUMENT names the flag, its value and what it takes. The words are those behind the program's name.
absl::StatusOr<Flags> ParseFlags(absl::Span<const char* const> words);

// Every flag with its default, one a line.
std::string FlagsHelp();

}  // namespace tandem::bench_serving
