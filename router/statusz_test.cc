// The table says what an operator asks first: who is up, who cannot be used and why, what is in flight.
#include "router/statusz.h"

#include <memory>
#include <vector>

#include "absl/strings/match.h"
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

}  // namespace
}  // namespace tandem::router
