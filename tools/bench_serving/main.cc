// bench_serving: a data set, a ready endpoint, a warm-up, the load, the report.
//
//   bazel run //tools/bench_serving -- --backend sglang-oai-chat --base-url http://127.0.0.1:8000
//       --dataset-name random-ids --tokenizer checkpoints/tandem-tiny --num-prompts 64 --max-concurrency 8
//
// Exit status: 0 every request was answered, 1 some was not or the endpoint cannot be asked, 2 a flag is wrong. The
// first Ctrl-C ends the load and reports what there is, the second ends the program. README.md says what each figure
// means.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/file_limit.h"
#include "base/status_macros.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/signal_set.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/json/parse.hpp"
#include "router/tokenizer/tokenizer.h"
#include "tools/bench_serving/dataset.h"
#include "tools/bench_serving/flags.h"
#include "tools/bench_serving/http_client.h"
#include "tools/bench_serving/load.h"
#include "tools/bench_serving/metrics.h"
#include "tools/bench_serving/progress.h"
#include "tools/bench_serving/report.h"
#include "tools/bench_serving/token_texts.h"

namespace tandem::bench_serving {
namespace {

constexpr absl::Duration kProbeTimeMax = absl::Seconds(10);  // of requests that ask for no tokens
constexpr absl::Duration kProbeInterval = absl::Milliseconds(200);

// The text at a JSON pointer of a body; "" where there is none.
std::string FindText(const std::string& body, const char* pointer) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse(body, error);
  if (error) return "";
  const boost::json::value* const found = value.find_pointer(pointer, error);
  return found == nullptr || !found->is_string() ? "" : std::string(found->as_string().c_str());
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + time.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Program {
 public:
  Program(Flags flags, Endpoint endpoint)
      : flags_(std::move(flags)), client_(io_context_, base::RealClock(), std::move(endpoint), flags_.headers) {}

  // OK where every request was answered.
  absl::Status Run() {
    RETURN_IF_ERROR(client_.Resolve());
    ASSIGN_OR_RETURN(const std::string models, AwaitReady());
    if (flags_.model.empty()) flags_.model = FindText(models, "/data/0/id");
    if (flags_.model.empty()) return absl::UnavailableError("/v1/models names no model: give --model");
    ASSIGN_OR_RETURN(const std::string tokenizer_path, FindTokenizer());
    ASSIGN_OR_RETURN(const std::unique_ptr<const router::Tokenizer> tokenizer, router::Tokenizer::Load(tokenizer_path));
    ASSIGN_OR_RETURN(const TokenTexts texts, TokenTexts::Of(*tokenizer));
    ASSIGN_OR_RETURN(const std::vector<BenchRequest> requests, MakeDataset(flags_, texts));
    if (flags_.dataset == Dataset::kRandom && flags_.dataset_path.empty()) {
      std::fputs("note: --dataset-name random without --dataset-path: texts of drawn words, as random-ids\n", stderr);
    }
    RETURN_IF_ERROR(WarmUp(requests.front()));
    if (flags_.flush_cache) RETURN_IF_ERROR(FlushCache());
    return RunLoad(requests, texts);
  }

 private:
  absl::StatusOr<HttpClient::Response> Get(const char* path) {
    return client_.Fetch({.method = "GET", .path = path, .time_max = kProbeTimeMax});
  }

  // The body of /v1/models.
  absl::StatusOr<std::string> AwaitReady() {
    const absl::Duration deadline = base::RealClock().Now() + flags_.ready_check_timeout;
    for (;;) {
      absl::StatusOr<HttpClient::Response> response = Get("/v1/models");
      if (response.ok() && response->status == 200) return response->body;
      if (base::RealClock().Now() >= deadline) {
        return absl::UnavailableError(absl::StrCat(
            "no answer of use from /v1/models within ", absl::FormatDuration(flags_.ready_check_timeout), ": ",
            response.ok() ? absl::StrCat("status ", response->status) : std::string(response.status().message())));
      }
      boost::asio::steady_timer timer(io_context_, absl::ToChronoNanoseconds(kProbeInterval));
      boost::system::error_code ignored;
      timer.wait(ignored);
    }
  }

  absl::StatusOr<std::string> FindTokenizer() {
    std::vector<std::string> places;
    if (!flags_.tokenizer.empty()) {
      places.push_back(flags_.tokenizer);
    } else {
      places.push_back(flags_.model);
      const absl::StatusOr<HttpClient::Response> info = Get("/get_model_info");
      if (info.ok() && info->status == 200) {
        places.push_back(FindText(info->body, "/tokenizer_path"));
        places.push_back(FindText(info->body, "/model_path"));
      }
    }
    std::error_code ignored;
    for (const std::string& place : places) {
      if (place.empty()) continue;
      if (std::filesystem::is_regular_file(place, ignored)) return place;
      const std::string file = absl::StrCat(place, "/tokenizer.json");
      if (std::filesystem::is_regular_file(file, ignored)) return file;
    }
    return absl::InvalidArgumentError(
        flags_.tokenizer.empty()
            ? absl::StrCat("the tokenizer of ", flags_.model, " is not on this machine: give --tokenizer")
            : absl::StrCat("--tokenizer: ", flags_.tokenizer, " is neither a tokenizer.json nor a folder with one"));
  }

  absl::Status WarmUp(const BenchRequest& request) {
    for (int i = 0; i < flags_.warmup_requests; ++i) {
      std::optional<Outcome> outcome;
      Ask(client_, base::RealClock(), flags_, Model(), request, nullptr,
          [&outcome](Outcome ended) { outcome = std::move(ended); });
      io_context_.restart();
      while (!outcome.has_value()) io_context_.run_one();
      if (!outcome->status.ok()) {
        return absl::Status(outcome->status.code(),
                            absl::StrCat("warm-up failed: ", std::string(outcome->status.message())));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FlushCache() {
    ASSIGN_OR_RETURN(const HttpClient::Response response,
                     client_.Fetch({.method = "POST", .path = "/flush_cache", .time_max = kProbeTimeMax}));
    if (response.status == 200) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("--flush-cache: /flush_cache gave status ", response.status, ": ", response.body));
  }

  absl::Status RunLoad(const std::vector<BenchRequest>& requests, const TokenTexts& texts) {
    const base::Clock& clock = base::RealClock();
    Load load(io_context_, client_, clock, flags_, Model(), requests,
              DrawArrivals(requests.size(), flags_.request_rate, flags_.seed));
    Progress progress(io_context_, clock, load, requests.size());
    boost::asio::signal_set signals(io_context_, SIGINT, SIGTERM);
    signals.async_wait([&](boost::system::error_code error, int) {
      if (error) return;
      signals.async_wait([](boost::system::error_code error, int) {
        if (!error) std::_Exit(130);
      });
      load.Interrupt();
    });
    if (!flags_.disable_tqdm) progress.Start();
    absl::Duration end;
    const double cpu_before = CpuSeconds();
    io_context_.restart();
    load.Start([&] {
      end = clock.Now();
      progress.Stop();
      signals.cancel();
    });
    io_context_.run();
    RunReport run;
    const absl::Duration duration = end - load.start();
    run.client_cpu_share = (CpuSeconds() - cpu_before) / absl::ToDoubleSeconds(duration);
    run.num_unsent = requests.size() - load.counts().num_sent;
    return WriteReport(load.TakeOutcomes(), load.start(), duration, texts, std::move(run));
  }

  absl::Status WriteReport(std::vector<Outcome> outcomes, absl::Duration start, absl::Duration duration,
                           const TokenTexts& texts, RunReport run) {
    const absl::StatusOr<HttpClient::Response> info = Get("/server_info");
    if (info.ok() && info->status == 200) {
      run.server_info = info->body;
      run.accept_length = FindAcceptLength(info->body);
    }
    const auto retokenize = [&texts](absl::string_view text) { return texts.CountTokens(text).value_or(0); };
    if (run.accept_length.value_or(0) > 0 && flags_.backend != Backend::kGenerate) {
      CountTokensOfChunks(retokenize, &outcomes);
    }
    run.metrics = CalculateMetrics(outcomes, start, duration, flags_.goodput, retokenize);
    std::fputs(ReportText(flags_, run).c_str(), stdout);
    const std::string path = OutputFile();
    std::ofstream file(path, std::ios::app);
    file << ReportLine(flags_, run, outcomes);
    file.close();
    if (!file) return absl::UnavailableError(absl::StrCat("--output-file: cannot write ", path));
    if (run.metrics.failures.empty() && run.num_unsent == 0) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat(outcomes.size() - run.metrics.completed, " of ", outcomes.size(), " requests failed"));
  }

  std::string OutputFile() const {
    if (!flags_.output_file.empty()) return flags_.output_file;
    const std::string day = absl::FormatTime("%m%d", base::RealClock().WallTime(), absl::LocalTimeZone());
    const bool is_random = flags_.dataset == Dataset::kRandom || flags_.dataset == Dataset::kRandomIds;
    return absl::StrCat(
        flags_.backend_name, "_", day, "_", flags_.num_prompts, "_",
        is_random ? absl::StrCat(flags_.random_input_len, "_", flags_.random_output_len) : flags_.dataset_name,
        ".jsonl");
  }

  std::string Model() const { return flags_.served_model_name.empty() ? flags_.model : flags_.served_model_name; }

  Flags flags_;
  boost::asio::io_context io_context_{1};
  HttpClient client_;
};

absl::Status Main(absl::Span<const char* const> words, const char* api_key) {
  ASSIGN_OR_RETURN(Flags flags, ParseFlags(words));
  if (flags.wants_help) {
    std::fputs(FlagsHelp().c_str(), stdout);
    return absl::OkStatus();
  }
  if (api_key != nullptr) flags.headers.emplace_back("Authorization", absl::StrCat("Bearer ", api_key));
  const std::string url =
      flags.base_url.empty() ? absl::StrCat("http://", flags.host, ":", flags.port) : flags.base_url;
  absl::StatusOr<Endpoint> endpoint = ParseBaseUrl(url);
  if (!endpoint.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--base-url: ", std::string(endpoint.status().message())));
  }
  base::RaiseFileLimit();
  return Program(std::move(flags), *std::move(endpoint)).Run();
}

}  // namespace
}  // namespace tandem::bench_serving

int main(int argc, char** argv) {
  const absl::Status status = tandem::bench_serving::Main(absl::MakeConstSpan(argv + 1, static_cast<size_t>(argc - 1)),
                                                          std::getenv("OPENAI_API_KEY"));
  if (!status.ok()) std::fprintf(stderr, "bench_serving: %s\n", std::string(status.message()).c_str());
  return tandem::base::ExitCode(status);
}
