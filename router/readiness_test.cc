#include "router/readiness.h"

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(ReadinessTest, OneShardSpeaksForItself) {
  Readiness readiness;
  const int shard = readiness.Join();
  EXPECT_EQ(readiness.Check().code(), absl::StatusCode::kUnavailable) << "not before it has said so";
  readiness.Post(shard, absl::UnavailableError("no usable pair"));
  EXPECT_EQ(readiness.Check().message(), "no usable pair");
  readiness.Post(shard, absl::OkStatus());
  EXPECT_TRUE(readiness.Check().ok());
}

TEST(ReadinessTest, EveryShardMustBeReadyAndThoseThatAreNotAreNamed) {
  Readiness readiness;
  for (int shard = 0; shard < 3; ++shard) readiness.Post(readiness.Join(), absl::OkStatus());
  EXPECT_TRUE(readiness.Check().ok());
  readiness.Post(1, absl::UnavailableError("no usable pair"));
  EXPECT_EQ(readiness.Check().message(), "shard 1 of 3: no usable pair");
  readiness.Post(0, absl::UnavailableError("starts"));
  EXPECT_EQ(readiness.Check().message(), "shard 0 of 3: starts\nshard 1 of 3: no usable pair");
  readiness.Post(0, absl::OkStatus());
  readiness.Post(1, absl::OkStatus());
  EXPECT_TRUE(readiness.Check().ok());
}

}  // namespace
}  // namespace tandem::router
