#include "tools/bench_serving/dataset.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::bench_serving {
namespace {

constexpr int kFileOutputLenDefault = 256;  // of an entry that has neither an answer nor a length
constexpr int kTokensMin = 2;               // of questions and answers of a file; shorter ones are noise

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("--dataset-path: cannot open ", path));
  std::ostringstream content;
  content << file.rdbuf();
  if (file.bad()) return absl::DataLossError(absl::StrCat("--dataset-path: cannot read ", path));
  return std::move(content).str();
}

int DrawLength(Draws& draws, int length, double range_ratio) {
  const int min = std::max(static_cast<int>(length * range_ratio), 1);
  return static_cast<int>(draws.Between(min, length));
}

// [prompt, output] of each request.
std::vector<std::pair<int, int>> DrawLengths(const Flags& flags, Draws& draws) {
  std::vector<std::pair<int, int>> lengths(flags.num_prompts);
  for (auto& [prompt, output] : lengths) {
    prompt = DrawLength(draws, flags.random_input_len, flags.random_range_ratio);
    output = DrawLength(draws, flags.random_output_len, flags.random_range_ratio);
  }
  return lengths;
}

absl::StatusOr<BenchRequest> TextRequest(std::string text, int output_len, const TokenTexts& texts) {
  BenchRequest request;
  ASSIGN_OR_RETURN(request.prompt_len, texts.CountTokens(text));
  request.text = std::move(text);
  request.output_len = output_len;
  return request;
}

absl::StatusOr<std::vector<BenchRequest>> RandomIds(const Flags& flags, const TokenTexts& texts) {
  Draws draws(flags.seed);
  std::vector<BenchRequest> requests;
  for (const auto& [prompt_len, output_len] : DrawLengths(flags, draws)) {
    if (flags.tokenize_prompt) {
      requests.push_back({.ids = texts.DrawIds(draws, prompt_len), .prompt_len = prompt_len, .output_len = output_len});
      continue;
    }
    ASSIGN_OR_RETURN(BenchRequest request, TextRequest(texts.DrawText(draws, prompt_len), output_len, texts));
    requests.push_back(std::move(request));
  }
  return requests;
}

absl::StatusOr<std::vector<FileEntry>> ReadEntries(const Flags& flags) {
  ASSIGN_OR_RETURN(const std::string file, ReadFile(flags.dataset_path));
  const bool is_sharegpt = flags.dataset == Dataset::kSharegpt || flags.dataset == Dataset::kRandom;
  absl::StatusOr<std::vector<FileEntry>> entries = is_sharegpt ? ParseSharegpt(file) : ParseLines(file);
  if (!entries.ok()) {
    return absl::Status(entries.status().code(), absl::StrCat("--dataset-path: ", flags.dataset_path, ": ",
                                                              std::string(entries.status().message())));
  }
  if (entries->empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--dataset-path: ", flags.dataset_path, " has no entry of use"));
  }
  return entries;
}

// The file's texts, each as long as was drawn.
absl::StatusOr<std::vector<BenchRequest>> RandomTexts(const Flags& flags, const TokenTexts& texts) {
  ASSIGN_OR_RETURN(std::vector<FileEntry> entries, ReadEntries(flags));
  Draws draws(flags.seed);
  draws.Shuffle(&entries);
  std::vector<BenchRequest> requests;
  size_t at = 0, num_empty = 0;
  for (const auto& [prompt_len, output_len] : DrawLengths(flags, draws)) {
    std::string text;
    while (text.empty() && num_empty < entries.size()) {
      ASSIGN_OR_RETURN(text, texts.FitText(entries[at++ % entries.size()].prompt, prompt_len));
      num_empty = text.empty() ? num_empty + 1 : 0;
    }
    if (text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--dataset-path: ", flags.dataset_path, " has no text"));
    }
    ASSIGN_OR_RETURN(BenchRequest request, TextRequest(std::move(text), output_len, texts));
    requests.push_back(std::move(request));
  }
  return requests;
}

absl::StatusOr<std::vector<BenchRequest>> SharedPrefix(const Flags& flags, const TokenTexts& texts) {
  Draws draws(flags.seed);
  std::vector<BenchRequest> requests;
  for (int group = 0; group < flags.gsp_num_groups; ++group) {
    const std::string system_prompt = texts.DrawText(draws, flags.gsp_system_prompt_len);
    for (int i = 0; i < flags.gsp_prompts_per_group; ++i) {
      std::string text = absl::StrCat(system_prompt, "\n\n", texts.DrawText(draws, flags.gsp_question_len));
      ASSIGN_OR_RETURN(BenchRequest request, TextRequest(std::move(text), flags.gsp_output_len, texts));
      requests.push_back(std::move(request));
    }
  }
  draws.Shuffle(&requests);
  return requests;
}

absl::StatusOr<std::vector<BenchRequest>> FromFile(const Flags& flags, const TokenTexts& texts) {
  ASSIGN_OR_RETURN(std::vector<FileEntry> entries, ReadEntries(flags));
  Draws draws(flags.seed);
  draws.Shuffle(&entries);
  std::vector<BenchRequest> requests;
  for (const FileEntry& entry : entries) {
    if (static_cast<int>(requests.size()) == flags.num_prompts) break;
    BenchRequest request;
    request.output_len = flags.sharegpt_output_len > 0 ? flags.sharegpt_output_len : entry.output_len;
    if (request.output_len == 0 && !entry.completion.empty()) {
      ASSIGN_OR_RETURN(request.output_len, texts.CountTokens(entry.completion));
      if (request.output_len < kTokensMin) continue;
    }
    if (request.output_len == 0) request.output_len = kFileOutputLenDefault;
    if (entry.messages.empty()) {
      ASSIGN_OR_RETURN(request,
                       TextRequest(absl::StrCat(entry.prompt, flags.prompt_suffix), request.output_len, texts));
      if (request.prompt_len < kTokensMin) continue;
    } else {
      if (flags.backend != Backend::kChat) {
        return absl::InvalidArgumentError(
            absl::StrCat("--dataset-path: ", flags.dataset_path, " has messages: they take a chat backend"));
      }
      request.messages = entry.messages;
      ASSIGN_OR_RETURN(request.prompt_len, texts.CountTokens(entry.messages));
    }
    if (flags.sharegpt_context_len > 0 && request.prompt_len + request.output_len > flags.sharegpt_context_len)
      continue;
    requests.push_back(std::move(request));
  }
  if (requests.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dataset-path: no entry of ", flags.dataset_path, " is left after the bounds on lengths"));
  }
  return requests;
}

}  // namespace

absl::StatusOr<std::vector<BenchRequest>> MakeDataset(const Flags& flags, const TokenTexts& texts) {
  switch (flags.dataset) {
    case Dataset::kRandomIds:
      return RandomIds(flags, texts);
    case Dataset::kRandom:
      return flags.dataset_path.empty() ? RandomIds(flags, texts) : RandomTexts(flags, texts);
    case Dataset::kSharedPrefix:
      return SharedPrefix(flags, texts);
    case Dataset::kSharegpt:
    case Dataset::kCustom:
    case Dataset::kOpenai:
      break;
  }
  return FromFile(flags, texts);
}

}  // namespace tandem::bench_serving
