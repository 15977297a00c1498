#include "tools/bench_serving/flags.h"

#include <cmath>
#include <functional>
#include <iterator>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "boost/json/parse.hpp"

namespace tandem::bench_serving {
namespace {

enum class Arity { kNone, kOne, kSeveral };

struct Flag {
  const char* name;
  Arity arity;
  const char* help;
  std::function<absl::Status(absl::string_view value, Flags* flags)> take;
};

template <typename Value>
using Names = std::vector<std::pair<const char*, Value>>;

const Names<Backend>& BackendNames() {
  static const auto* const kNames = new Names<Backend>{
      {"sglang", Backend::kGenerate},      {"sglang-native", Backend::kGenerate}, {"sglang-oai", Backend::kCompletions},
      {"sglang-oai-chat", Backend::kChat}, {"vllm", Backend::kCompletions},       {"vllm-chat", Backend::kChat}};
  return *kNames;
}

const Names<Dataset>& DatasetNames() {
  static const auto* const kNames =
      new Names<Dataset>{{"sharegpt", Dataset::kSharegpt},    {"random", Dataset::kRandom},
                         {"random-ids", Dataset::kRandomIds}, {"generated-shared-prefix", Dataset::kSharedPrefix},
                         {"custom", Dataset::kCustom},        {"openai", Dataset::kOpenai}};
  return *kNames;
}

template <typename Value>
std::string AllNames(const Names<Value>& names) {
  return absl::StrJoin(names, ", ", [](std::string* out, const auto& name) { out->append(name.first); });
}

template <typename Value>
absl::StatusOr<Value> FindName(absl::string_view text, const Names<Value>& names) {
  for (const auto& [name, value] : names) {
    if (text == name) return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is none of ", AllNames(names)));
}

Flag Text(const char* name, std::string Flags::*field, const char* help) {
  return {name, Arity::kOne, help, [field](absl::string_view value, Flags* flags) {
            flags->*field = std::string(value);
            return absl::OkStatus();
          }};
}

Flag Switch(const char* name, bool Flags::*field, const char* help) {
  return {name, Arity::kNone, help, [field](absl::string_view, Flags* flags) {
            flags->*field = true;
            return absl::OkStatus();
          }};
}

Flag Count(const char* name, int Flags::*field, int min, const char* help) {
  return {name, Arity::kOne, help, [field, min](absl::string_view value, Flags* flags) {
            int number = 0;
            if (!absl::SimpleAtoi(value, &number) || number < min) {
              return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no whole number from ", min, " on"));
            }
            flags->*field = number;
            return absl::OkStatus();
          }};
}

Flag Real(const char* name, double Flags::*field, double min, double max, const char* help) {
  return {name, Arity::kOne, help, [field, min, max](absl::string_view value, Flags* flags) {
            double number = 0;
            if (!absl::SimpleAtod(value, &number) || !(number >= min && number <= max)) {
              return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no number from ", min, " to ", max));
            }
            flags->*field = number;
            return absl::OkStatus();
          }};
}

Flag Seconds(const char* name, absl::Duration Flags::*field, const char* help) {
  return {name, Arity::kOne, help, [field](absl::string_view value, Flags* flags) {
            double number = 0;
            if (!absl::SimpleAtod(value, &number) || !(number >= 0) || std::isinf(number)) {
              return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no number of seconds"));
            }
            flags->*field = absl::Seconds(number);
            return absl::OkStatus();
          }};
}

absl::Status TakeBackend(absl::string_view value, Flags* flags) {
  ASSIGN_OR_RETURN(flags->backend, FindName(value, BackendNames()));
  flags->backend_name = std::string(value);
  return absl::OkStatus();
}

absl::Status TakeDataset(absl::string_view value, Flags* flags) {
  ASSIGN_OR_RETURN(flags->dataset, FindName(value, DatasetNames()));
  flags->dataset_name = std::string(value);
  return absl::OkStatus();
}

absl::Status TakeRate(absl::string_view value, Flags* flags) {
  if (!absl::SimpleAtod(value, &flags->request_rate) || !(flags->request_rate > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no rate: requests a second, or inf"));
  }
  return absl::OkStatus();
}

absl::Status TakeSeed(absl::string_view value, Flags* flags) {
  if (!absl::SimpleAtoi(value, &flags->seed)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no whole number from 0 on"));
  }
  return absl::OkStatus();
}

absl::Status TakeHeader(absl::string_view value, Flags* flags) {
  const size_t equals = value.find('=');
  if (equals == absl::string_view::npos || equals == 0 || value.find_first_of("\r\n") != absl::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no NAME=VALUE"));
  }
  flags->headers.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  return absl::OkStatus();
}

absl::Status TakeExtraBody(absl::string_view value, Flags* flags) {
  boost::system::error_code error;
  const boost::json::value body = boost::json::parse({value.data(), value.size()}, error);
  if (error || !body.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is no JSON object"));
  }
  flags->extra_request_body = std::string(value);
  return absl::OkStatus();
}

const std::vector<Flag>& AllFlags() {
  static const auto* const kFlags = new std::vector<Flag>{
      {"backend", Arity::kOne,
       "sglang (/generate; also sglang-native), sglang-oai or vllm (/v1/completions), sglang-oai-chat or vllm-chat",
       TakeBackend},
      Text("base-url", &Flags::base_url, "http://host:port, instead of --host and --port"),
      Text("host", &Flags::host, "127.0.0.1"),
      Count("port", &Flags::port, 1, "8000"),
      Text("model", &Flags::model, "in the requests; the first of /v1/models where it is not given"),
      Text("served-model-name", &Flags::served_model_name, "in the requests, where --model is a folder"),
      Text("tokenizer", &Flags::tokenizer, "folder or tokenizer.json; the model's folder where it is on this machine"),
      {"header", Arity::kSeveral, "NAME=VALUE ..., sent with every request", TakeHeader},
      {"dataset-name", Arity::kOne, "sharegpt, random, random-ids, generated-shared-prefix, custom, openai",
       TakeDataset},
      Text("dataset-path", &Flags::dataset_path, "the file of sharegpt, custom and openai, and of the texts of random"),
      Count("num-prompts", &Flags::num_prompts, 1, "1000"),
      Count("random-input-len", &Flags::random_input_len, 1, "1024 tokens"),
      Count("random-output-len", &Flags::random_output_len, 1, "1024 tokens"),
      Real("random-range-ratio", &Flags::random_range_ratio, 0, 1,
           "0: lengths are uniform from 1 to the given one; 1: they are the given one"),
      Count("sharegpt-output-len", &Flags::sharegpt_output_len, 1, "instead of the lengths of the file's answers"),
      Count("sharegpt-context-len", &Flags::sharegpt_context_len, 1, "longer conversations are passed over"),
      Count("gsp-num-groups", &Flags::gsp_num_groups, 1, "64 groups, each with its own system prompt"),
      Count("gsp-prompts-per-group", &Flags::gsp_prompts_per_group, 1, "16"),
      Count("gsp-system-prompt-len", &Flags::gsp_system_prompt_len, 1, "2048 tokens"),
      Count("gsp-question-len", &Flags::gsp_question_len, 1, "128 tokens"),
      Count("gsp-output-len", &Flags::gsp_output_len, 1, "256 tokens"),
      Switch("tokenize-prompt", &Flags::tokenize_prompt, "send token ids instead of text (random-ids)"),
      Text("prompt-suffix", &Flags::prompt_suffix, "added to every prompt of a file"),
      {"seed", Arity::kOne, "42; the same seed gives the same prompts, lengths and arrivals", TakeSeed},
      {"request-rate", Arity::kOne, "requests a second, as a Poisson process; inf: all at once", TakeRate},
      Count("max-concurrency", &Flags::max_concurrency, 1, "requests under way at once"),
      Count("warmup-requests", &Flags::warmup_requests, 0, "1; asked before the run and not counted"),
      Switch("flush-cache", &Flags::flush_cache, "POST /flush_cache before the run"),
      Seconds("ready-check-timeout-sec", &Flags::ready_check_timeout, "60; how long /v1/models may take to answer"),
      Seconds("request-timeout", &Flags::request_timeout, "21600 seconds"),
      Switch("disable-stream", &Flags::disable_stream, "ask for whole answers"),
      Switch("disable-ignore-eos", &Flags::disable_ignore_eos, "let the model end its answers"),
      Switch("return-logprob", &Flags::return_logprob, "ask /generate for logprobs"),
      Real("temperature", &Flags::temperature, 0, 2, "0"),
      Real("top-p", &Flags::top_p, 0, 1, "1"),
      {"extra-request-body", Arity::kOne, "a JSON object whose members are added to every request", TakeExtraBody},
      {"goodput", Arity::kSeveral,
       "ttft:MS tpot:MS itl:MS e2e:MS; counts the answers that keep all of them (itl: every gap)",
       [](absl::string_view value, Flags* flags) { return AddGoodputLimit(value, &flags->goodput); }},
      Text("output-file", &Flags::output_file, "JSON Lines, one line added; BACKEND_MMDD_... where it is not given"),
      Switch("output-details", &Flags::output_details, "lengths, times, texts and errors of every request too"),
      Switch("disable-tqdm", &Flags::disable_tqdm, "no progress"),
      Text("tag", &Flags::tag, "kept in the output"),
      Switch("help", &Flags::wants_help, "this list"),
  };
  return *kFlags;
}

absl::Status Check(const Flags& flags) {
  const bool needs_file =
      flags.dataset == Dataset::kSharegpt || flags.dataset == Dataset::kCustom || flags.dataset == Dataset::kOpenai;
  if (needs_file && flags.dataset_path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--dataset-name ", flags.dataset_name,
                                                   " needs --dataset-path: nothing is downloaded; random-ids and ",
                                                   "generated-shared-prefix need no file"));
  }
  if (flags.tokenize_prompt && flags.dataset != Dataset::kRandomIds) {
    return absl::InvalidArgumentError("--tokenize-prompt takes --dataset-name random-ids");
  }
  if (flags.tokenize_prompt && flags.backend == Backend::kChat) {
    return absl::InvalidArgumentError("--tokenize-prompt: chat takes messages, not token ids");
  }
  if (flags.dataset == Dataset::kOpenai && flags.backend != Backend::kChat) {
    return absl::InvalidArgumentError("--dataset-name openai has messages: it takes a chat backend");
  }
  if (flags.top_p == 0) return absl::InvalidArgumentError("--top-p: 0 is out of range: more than 0, at most 1");
  if (flags.disable_stream && (flags.goodput.itl.has_value() || flags.goodput.tpot.has_value())) {
    return absl::InvalidArgumentError("--goodput tpot and itl need a stream: leave --disable-stream out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Flags> ParseFlags(absl::Span<const char* const> words) {
  Flags flags;
  size_t at = 0;
  while (at < words.size()) {
    absl::string_view word = words[at++];
    if (!absl::ConsumePrefix(&word, "--")) {
      return absl::InvalidArgumentError(absl::StrCat("\"", word, "\" is no flag: they begin with --"));
    }
    const size_t equals = word.find('=');
    const std::string name = absl::StrReplaceAll(word.substr(0, equals), {{"_", "-"}});
    const auto flag = absl::c_find_if(AllFlags(), [&](const Flag& known) { return name == known.name; });
    if (flag == AllFlags().end()) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " is not offered; --help lists what is"));
    }
    std::vector<absl::string_view> values;
    if (equals != absl::string_view::npos) values.push_back(word.substr(equals + 1));
    if (flag->arity == Arity::kOne && values.empty() && at < words.size()) values.push_back(words[at++]);
    if (flag->arity == Arity::kSeveral) {
      while (at < words.size() && absl::string_view(words[at]).substr(0, 2) != "--") values.push_back(words[at++]);
    }
    if (flag->arity == Arity::kNone) {
      if (!values.empty()) return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
      values.push_back("");
    }
    if (values.empty()) return absl::InvalidArgumentError(absl::StrCat("--", name, " takes a value"));
    for (const absl::string_view value : values) {
      const absl::Status taken = flag->take(value, &flags);
      if (!taken.ok()) return absl::InvalidArgumentError(absl::StrCat("--", name, ": ", std::string(taken.message())));
    }
  }
  if (!flags.wants_help) RETURN_IF_ERROR(Check(flags));
  return flags;
}

std::string FlagsHelp() {
  std::string help = "bench_serving: load on a running endpoint, and what its clients saw of it\n\n";
  for (const Flag& flag : AllFlags()) {
    std::string left = absl::StrCat("  --", flag.name);
    left.resize(std::max<size_t>(left.size() + 1, 28), ' ');
    absl::StrAppend(&help, left, flag.help, "\n");
  }
  return help;
}

}  // namespace tandem::bench_serving
