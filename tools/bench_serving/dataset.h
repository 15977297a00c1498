// The requests of a run, from the seed and, for some, a file on this machine. Nothing is downloaded.
//
// random-ids: texts (or ids) without meaning of uniform lengths. random: the same lengths, cut from a
// file's texts where there is one.
// generated-shared-prefix: groups that share a system prompt. sharegpt, custom: first question and answer of each
// conversation; custom and openai lines may also hold a prompt, or messages as an API takes them.
// Lengths by default as SGLang draws them. Tested by dataset_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/bench_serving/bench_request.h"
#include "tools/bench_serving/flags.h"
#include "tools/bench_serving/token_texts.h"

namespace tandem::bench_serving {

// INVALID_ARGUMENT names the file and what is wrong with it, NOT_FOUND a file that cannot be opened.
absl::StatusOr<std::vector<BenchRequest>> MakeDataset(const Flags& flags, const TokenTexts& texts);

// A question with its answer, or one with a length, as a file has them.
struct FileEntry {
  std::string prompt;      // or
  std::string messages;    // a JSON array
  std::string completion;  // "" = none
  int output_len = 0;      // 0 = not said
};

// sharegpt: one JSON array of conversations. Entries of fewer than two turns are passed over.
absl::StatusOr<std::vector<FileEntry>> ParseSharegpt(absl::string_view file);
// custom and openai: a JSON object a line. INVALID_ARGUMENT with the line where one is none of the known kinds.
absl::StatusOr<std::vector<FileEntry>> ParseLines(absl::string_view file);

}  // namespace tandem::bench_serving
