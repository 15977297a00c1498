// Proves that the block has SGLang's lines with their values, the line of JSON its keys, and that what went wrong is
// said. The values are distinct, so that none can stand for another.
#include "tools/bench_serving/report.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "boost/json/parse.hpp"

namespace tandem::bench_serving {
namespace {

namespace json = boost::json;

RunReport MakeRun() {
  RunReport run;
  run.metrics.duration = 12.5;
  run.metrics.completed = 80;
  run.metrics.total_input = 1001;
  run.metrics.total_output = 2002;
  run.metrics.total_output_retokenized = 2003;
  run.metrics.request_throughput = 6.4;
  run.metrics.max_output_tokens_per_s = 321;
  run.metrics.max_concurrent_requests = 17;
  run.metrics.ttft_ms = {.mean = 1, .median = 2, .std = 3, .p90 = 4, .p95 = 5, .p99 = 6, .max = 7};
  run.metrics.itl_ms = {.mean = 11, .median = 12, .std = 13, .p90 = 14, .p95 = 15, .p99 = 16, .max = 17};
  return run;
}

TEST(ReportTextTest, HasTheLinesThatToolsLookFor) {
  Flags flags;
  flags.backend_name = "sglang-oai";
  flags.max_concurrency = 16;
  const std::string text = ReportText(flags, MakeRun());
  for (const char* line :
       {"\n============ Serving Benchmark Result ============\n",
        "\nBackend:                                 sglang-oai", "\nTraffic request rate:                    inf",
        "\nMax request concurrency:                 16", "\nSuccessful requests:                     80",
        "\nBenchmark duration (s):                  12.50", "\nTotal generated tokens (retokenized):    2003",
        "\nPeak output token throughput (tok/s):    321.00", "\nPeak concurrent requests:                17",
        "\n---------------Time to First Token----------------\n", "\nMean TTFT (ms):                          1.00",
        "\nP95 TTFT (ms):                           5.00", "\nP99 ITL (ms):                            16.00",
        "\nMax ITL (ms):                            17.00"}) {
    EXPECT_TRUE(absl::StrContains(text, line)) << line << text;
  }
  for (const char* absent : {"Good requests", "Accept length", "failed:", "warning:", "interrupted:"}) {
    EXPECT_FALSE(absl::StrContains(text, absent)) << absent << text;
  }
}

TEST(ReportTextTest, SaysWhatWentWrong) {
  RunReport run = MakeRun();
  run.metrics.failures["status 503"] = {.count = 3, .first = "no pair"};
  run.metrics.num_other_length = 4;
  run.metrics.num_uncounted = 5;
  run.num_unsent = 6;
  run.client_cpu_share = 0.93;
  run.accept_length = 2.75;
  Flags flags;
  flags.goodput.ttft = absl::Milliseconds(200);
  const std::string text = ReportText(flags, run);
  for (const char* words :
       {"failed: 3 x status 503 (first: no pair)\n", "interrupted: 6 requests were never sent\n",
        "warning: 4 answers have another number", "warning: of 5 answers", "warning: this program used 93 % of a core",
        "Accept length:                           2.75", "Good requests:"}) {
    EXPECT_TRUE(absl::StrContains(text, words)) << words << text;
  }
}

TEST(ReportLineTest, IsOneLineWithTheFiguresUnderTheirKeys) {
  Flags flags;
  flags.goodput.itl = absl::Milliseconds(50);
  flags.tag = "t";
  RunReport run = MakeRun();
  run.server_info = R"({"version":"1"})";
  run.metrics.failures["timeout"] = {.count = 2, .first = "x"};
  run.metrics.prompt_tokens_counted = 400;
  run.metrics.cached_tokens = 100;
  run.metrics.has_cached_tokens = true;
  const std::string line = ReportLine(flags, run, {});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const json::object object = json::parse(line).as_object();
  EXPECT_EQ(object.at("tag"), "t");
  EXPECT_EQ(object.at("request_rate"), "inf");
  EXPECT_TRUE(object.at("max_concurrency").is_null());
  EXPECT_EQ(object.at("duration"), 12.5);
  EXPECT_EQ(object.at("total_output_tokens"), 2002);
  EXPECT_EQ(object.at("mean_ttft_ms"), 1.0);
  EXPECT_EQ(object.at("median_ttft_ms"), 2.0);
  EXPECT_EQ(object.at("std_ttft_ms"), 3.0);
  EXPECT_EQ(object.at("p99_itl_ms"), 16.0);
  EXPECT_EQ(object.at("max_itl_ms"), 17.0);
  EXPECT_EQ(object.at("server_info").at("version"), "1");
  EXPECT_EQ(object.at("goodput").at("itl_ms"), 50.0);
  EXPECT_EQ(object.at("cache_report").at("cached_tokens"), 100);
  EXPECT_EQ(object.at("cache_report").at("hit_rate"), 0.25);
  EXPECT_EQ(object.at("failures").at("timeout"), 2);
  EXPECT_EQ(object.if_contains("errors"), nullptr) << "details are asked for";
}

TEST(ReportLineTest, DetailsHaveOneEntryForEachRequest) {
  Flags flags;
  flags.output_details = true;
  Outcome answered;
  answered.end = absl::Seconds(2);
  answered.prompt_len = 3;
  answered.answer.text = "ab";
  answered.answer.completion_tokens = 2;
  answered.answer.chunks = {{.at = absl::Milliseconds(500), .text_end = 1}, {.at = absl::Seconds(2), .text_end = 2}};
  Outcome failed;
  failed.status = absl::UnavailableError("status 500: x");
  const json::value line = json::parse(ReportLine(flags, MakeRun(), {answered, failed}));
  EXPECT_EQ(line.at("input_lens"), json::parse("[3,0]"));
  EXPECT_EQ(line.at("output_lens"), json::parse("[2,0]"));
  EXPECT_EQ(line.at("ttfts"), (json::array{0.5, 0.0}));
  EXPECT_EQ(line.at("e2e_latencies"), (json::array{2.0, 0.0}));
  EXPECT_EQ(line.at("itls"), (json::array{json::array{1.5}, json::array{}}));
  EXPECT_EQ(line.at("generated_texts"), json::parse(R"(["ab",""])"));
  EXPECT_EQ(line.at("errors"), json::parse(R"(["","status 500: x"])"));
}

TEST(FindAcceptLengthTest, LooksWhereServersPutIt) {
  EXPECT_EQ(FindAcceptLength(R"({"internal_states":[{"avg_spec_accept_length":2.5}]})"), 2.5);
  EXPECT_EQ(FindAcceptLength(R"({"decode":[{"internal_states":[{"avg_spec_accept_length":3}]}],
                                 "internal_states":[{"avg_spec_accept_length":2.5}]})"),
            3);
  for (const char* body : {"", "{}", "[]", R"({"internal_states":[]})", R"({"decode":[]})", R"({"decode":7})",
                           R"({"internal_states":[{"avg_spec_accept_length":null}]})"}) {
    EXPECT_EQ(FindAcceptLength(body), std::nullopt) << body;
  }
}

}  // namespace
}  // namespace tandem::bench_serving
