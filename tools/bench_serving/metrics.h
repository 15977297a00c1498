// The figures of a run, by the definitions of SGLang's bench_serving, so that two reports can be set side by side.
//
// TTFT: from a request's sending to its first chunk with text. ITL: between chunks; one of k tokens counts as k equal
// gaps. E2E: to the last event. TPOT: (E2E - TTFT) / (tokens - 1), of answers of two tokens and more. Failed requests
// are in none of them. Percentiles are NumPy's (linear between samples), std is of the population; all are 0 of no
// sample. Peaks: tokens of the fullest second of the run; requests under way at one moment (SGLang counts those that
// touch one second, which is more). Tested by metrics_test.cc against worked vectors, and against NumPy by
// numpy_metrics_test.py.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/bench_serving/goodput.h"
#include "tools/bench_serving/outcome.h"

namespace tandem::bench_serving {

struct Summary {
  double mean = 0, median = 0, std = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Summary Summarize(std::vector<double> samples);

struct Failures {
  int count = 0;
  std::string first;  // the particulars of the first one
};

struct BenchMetrics {
  double duration = 0;  // seconds
  int completed = 0;
  int64_t total_input = 0;
  int64_t total_output = 0;
  int64_t total_output_retokenized = 0;
  double request_throughput = 0, input_throughput = 0, output_throughput = 0, total_throughput = 0;  // a second
  double concurrency = 0;  // requests under way, in the mean over the duration
  int max_output_tokens_per_s = 0;
  int max_concurrent_requests = 0;
  Summary e2e_ms, ttft_ms, tpot_ms, itl_ms;
  Summary lateness_ms;

  int num_good = 0;  // completed within the bounds
  double request_goodput = 0;
  std::map<std::string, Failures> failures;  // by kind
  int num_other_length = 0;                  // answers of another length than asked for
  int num_uncounted = 0;              // answers whose tokens the server did not count: chunks are counted instead
  int64_t prompt_tokens_counted = 0;  // by the server
  int64_t cached_tokens = 0;
  bool has_cached_tokens = false;
};

// With drafts a chunk of text may be several tokens, and chat and completions do not say how many: each chunk counts as
// what its text has, at least one.
void CountTokensOfChunks(absl::FunctionRef<int(absl::string_view)> retokenize, std::vector<Outcome>* outcomes);

// The gaps between chunks, in milliseconds.
std::vector<double> GapsMs(const Answer& answer);
// Tokens of an answer: the server's count, or its chunks'.
int OutputLen(const Answer& answer);

// retokenize: tokens of an answer's text, by our tokenizer. start and duration: of the run.
BenchMetrics CalculateMetrics(const std::vector<Outcome>& outcomes, absl::Duration start, absl::Duration duration,
                              const GoodputLimits& limits, absl::FunctionRef<int(absl::string_view)> retokenize);

}  // namespace tandem::bench_serving
