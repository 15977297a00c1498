#include "kvtransfer/start_parts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kNow = absl::Seconds(9);

TransferRequest Request(int num_tokens) {
  TransferRequest request;
  request.key.set_request_id(3);
  for (int i = 0; i < num_tokens; ++i) request.prompt_tokens.push_back(0xffffffff - i);  // 5 bytes each on the wire
  request.generated_tokens = {8, 9};
  request.sampling.set_top_k(4);
  request.stopping.set_max_new_tokens(5);
  request.num_prefix_tokens_held = 64;
  request.cache_salt = "tenant";
  request.priority = -3;
  request.trace_parent = "00-trace";
  request.remaining_time = absl::Milliseconds(7);
  request.target_pages.assign(kvcache::PagesForTokens(num_tokens), 0);
  return request;
}

StartAssembly Begin(const proto::Start& first) { return StartAssembly(Request(1).key, first, kNow); }

TEST(StartPartsTest, EveryLengthComesOutAsItWentInAndNoPartIsTooLong) {
  for (const int num_tokens : {64, 49'999, 50'000, 50'001, 100'000, 163'840}) {
    const TransferRequest request = Request(num_tokens);
    const std::vector<proto::Start> parts = BuildStartParts(request);
    StartAssembly assembly = Begin(parts.front());
    for (const proto::Start& part : parts) {
      EXPECT_LE(part.ByteSizeLong(), (256u << 10) - 512);  // room for the envelope
      EXPECT_FALSE(assembly.IsComplete());
      assembly.Add(part);
    }
    ASSERT_TRUE(assembly.IsComplete());
    EXPECT_TRUE(assembly.Validate().ok()) << assembly.Validate();
    const StartRequest start = assembly.Take();
    EXPECT_EQ(start.key.request_id(), 3u);
    EXPECT_EQ(start.prompt_tokens, request.prompt_tokens);
    EXPECT_EQ(start.generated_tokens, request.generated_tokens);
    EXPECT_EQ(start.sampling.top_k(), 4);
    EXPECT_EQ(start.stopping.max_new_tokens(), 5u);
    EXPECT_EQ(start.num_prefix_tokens_held, 64);
    EXPECT_EQ(start.cache_salt, "tenant");
    EXPECT_EQ(start.priority, -3);
    EXPECT_EQ(start.trace_parent, "00-trace");
    EXPECT_EQ(start.num_choices, 1);
    EXPECT_EQ(start.deadline, kNow + absl::Milliseconds(7));
  }
}

TEST(StartPartsTest, NoDeadlineStaysNoDeadlineAndALateOneIsNotLost) {
  TransferRequest request = Request(64);
  request.remaining_time = absl::InfiniteDuration();
  EXPECT_EQ(Begin(BuildStartParts(request).front()).request().deadline, absl::InfiniteDuration());
  request.remaining_time = absl::Nanoseconds(1);
  EXPECT_EQ(Begin(BuildStartParts(request).front()).request().deadline, kNow + absl::Microseconds(1));
}

TEST(StartPartsTest, CopiesAndPartsAfterALostOneAreIgnored) {
  const std::vector<proto::Start> parts = BuildStartParts(Request(120'000));
  ASSERT_EQ(parts.size(), 3u);
  StartAssembly assembly = Begin(parts[0]);
  for (const int index : {0, 0, 2, 1, 1, 0}) assembly.Add(parts[index]);
  EXPECT_FALSE(assembly.IsComplete());
  assembly.Add(parts[2]);
  EXPECT_TRUE(assembly.IsComplete());
  EXPECT_TRUE(assembly.Validate().ok());
}

TEST(StartPartsTest, MoreTokensThanPromisedEndTheAssembly) {
  std::vector<proto::Start> parts = BuildStartParts(Request(120'000));
  parts[0].set_num_tokens(60'000);
  StartAssembly assembly = Begin(parts[0]);
  assembly.Add(parts[0]);
  assembly.Add(parts[1]);
  ASSERT_TRUE(assembly.IsComplete());
  EXPECT_THAT(std::string(assembly.Validate().message()), HasSubstr("promised 60000 prompt tokens and brought 100000"));
}

TEST(StartPartsTest, TheFirstPartMustPromiseWhatCanBe) {
  proto::Start start;
  start.set_num_tokens(100);
  EXPECT_TRUE(StartAssembly::ValidateFirst(start, 100).ok());
  EXPECT_FALSE(StartAssembly::ValidateFirst(start, 99).ok());
  start.set_num_tokens(0xffffffff);
  EXPECT_FALSE(StartAssembly::ValidateFirst(start, 99).ok());
}

}  // namespace
}  // namespace tandem::kvtransfer
