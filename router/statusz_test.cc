// The table says what an operator asks first: who is up, who cannot be used and why, what is in flight.
#include "router/statusz.h"

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(StatuszTest, NamesWorkersPairsAndRequests) {
  ClusterView view;
  view.prefills.resize(1);
  view.prefills[0].address = "10.0.0.1:9000";
  view.prefills[0].bootstrap_address = "10.0.0.1:8998";
  view.prefills[0].is_up = true;
  view.decodes.resize(2);
  view.decodes[0].address = "10.0.0.2:9000";
  view.decodes[0].is_up = true;
  view.decodes[0].instance = "decode-0";
  view.decodes[0].peers["10.0.0.1:8998"] = {true, "", "ucx_shm", 5e9};
  view.decodes[1].address = "10.0.0.3:9000";
  view.decodes[1].detail = "silent for 800ms";
  RequestView request;
  request.id = "chatcmpl-1";
  request.pair = "the pair";
  request.num_prompt_tokens = 12;
  request.num_generated = 3;
  base::FakeClock clock;
  Admission admission({.in_flight_max = 1, .waiting_max = 4}, clock);
  const auto running = admission.Enter({}, [] {});
  const auto waiting = admission.Enter({}, [] {});
  RequestView in_line;
  in_line.id = "chatcmpl-2";
  in_line.is_waiting = true;
  const std::string text = StatuszText("r0", view, admission, {request, in_line});
  EXPECT_TRUE(absl::StrContains(text, "router r0: ready")) << text;
  EXPECT_TRUE(absl::StrContains(text, "decode-0")) << text;
  EXPECT_TRUE(absl::StrContains(text, "usable over ucx_shm, 5000.0 MB/s")) << text;
  EXPECT_TRUE(absl::StrContains(text, "down: silent for 800ms")) << text;
  EXPECT_TRUE(absl::StrContains(text, "requests in flight: 1 of 1, in line: 1 of 4")) << text;
  EXPECT_TRUE(absl::StrContains(text, "chatcmpl-1 age=0 prompt=12 generated=3  the pair")) << text;
  EXPECT_TRUE(absl::StrContains(text, "chatcmpl-2 age=0 prompt=0 generated=0  in line")) << text;
}

TEST(StatuszTest, LongListsAreCut) {
  base::FakeClock clock;
  Admission admission({.in_flight_max = 1000, .waiting_max = 0}, clock);
  std::vector<std::unique_ptr<Admission::Place>> places;
  for (int i = 0; i < 150; ++i) places.push_back(admission.Enter({}, [] {}).value());
  const std::string text = StatuszText("r0", ClusterView(), admission, std::vector<RequestView>(100));
  EXPECT_TRUE(absl::StrContains(text, "requests in flight: 150 of 1000"));
  EXPECT_TRUE(absl::StrContains(text, "... and 50 more"));
  EXPECT_TRUE(absl::StrContains(text, "no usable pair")) << text;
}

TEST(StatuszTest, OfManyPairsThoseThatNeedALookAreShown) {
  ClusterView view;
  for (int i = 0; i < 20; ++i) {
    PrefillView& prefill = view.prefills.emplace_back();
    prefill.address = absl::StrCat("p", i, ":1");
    prefill.bootstrap_address = absl::StrCat("p", i, ":2");
    prefill.is_up = true;
  }
  for (int i = 0; i < 20; ++i) {
    DecodeView& decode = view.decodes.emplace_back();
    decode.address = absl::StrCat("d", i, ":1");
    decode.is_up = true;
    for (const PrefillView& prefill : view.prefills) decode.peers[prefill.bootstrap_address] = {true, "", "tcp", 2e9};
  }
  view.decodes[17].peers["p18:2"] = {false, "wrong sums", "", 0};
  view.decodes[19].peers["p19:2"].lane_bytes_per_second = 1e6;
  base::FakeClock clock;
  const Admission admission({.in_flight_max = 1}, clock);
  const std::string text = StatuszText("r0", view, admission, {});
  const size_t pairs = text.find("pairs (prefill with decode)");
  const size_t worst = text.find("not usable: wrong sums"), slowest = text.find("usable over tcp, 1.0 MB/s");
  EXPECT_TRUE(pairs < worst && worst < slowest && slowest < text.find("usable over tcp, 2000.0 MB/s")) << text;
  EXPECT_TRUE(absl::StrContains(text, "... and 200 more\n")) << text;
}

}  // namespace
}  // namespace tandem::router
