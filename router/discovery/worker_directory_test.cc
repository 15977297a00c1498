#include "router/discovery/worker_directory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

class WorkerDirectoryTest : public testing::Test {
 protected:
  WorkerDirectoryTest() {
    directory_.Subscribe([this](const WorkerLists& lists) { heard_.push_back(lists); });
  }
  WorkerDirectory directory_;
  std::vector<WorkerLists> heard_;
};

TEST_F(WorkerDirectoryTest, SubscribersHearTheUnionAndOnlyChanges) {
  ASSERT_EQ(heard_.size(), 1u) << "what there is already";
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  directory_.Report("dns", WorkerLists{{"p0:1", "p1:1"}, {}});
  directory_.Report("dns", WorkerLists{{"p0:1", "p1:1"}, {}});
  ASSERT_EQ(heard_.size(), 3u);
  EXPECT_EQ(heard_.back(), (WorkerLists{{"p0:1", "p1:1"}, {"d0:1"}}));
  directory_.Report("file", WorkerLists{{}, {"d0:1"}});
  ASSERT_EQ(heard_.size(), 3u) << "p0 is still known to the other source";
  directory_.Report("dns", WorkerLists{});
  EXPECT_EQ(heard_.back(), (WorkerLists{{}, {"d0:1"}}));
}

TEST_F(WorkerDirectoryTest, ASourceThatFailsKeepsWhatItSaidLast) {
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) directory_.Report("file", absl::InvalidArgumentError("workers.yaml:3: not YAML"));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(directory_.lists(), (WorkerLists{{"p0:1"}, {"d0:1"}}));
  EXPECT_EQ(heard_.size(), 2u);
  EXPECT_NE(log.find("workers.yaml:3: not YAML"), std::string::npos) << log;
  EXPECT_EQ(log.find("workers are not found"), log.rfind("workers are not found")) << "told once: " << log;

  testing::internal::CaptureStderr();
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("workers are found again"), std::string::npos);
}

TEST_F(WorkerDirectoryTest, TheNumberOfSourcesThatFailIsTold) {
  std::vector<int> counts;
  directory_.SubscribeFailures([&](int num_failing) { counts.push_back(num_failing); });
  directory_.Report("file", absl::UnavailableError("away"));
  directory_.Report("file", absl::UnavailableError("away"));
  directory_.Report("dns", absl::UnavailableError("away"));
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  directory_.Report("dns", WorkerLists{});
  directory_.Report("dns", WorkerLists{});
  EXPECT_EQ(counts, (std::vector<int>{0, 1, 2, 1, 0}));
}

TEST_F(WorkerDirectoryTest, FailuresThatTakeTurnsAreToldOnceEach) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 40; ++i) {
    directory_.Report("api", absl::UnavailableError(i % 2 == 0 ? "refused" : "timed out"));
  }
  for (int i = 0; i < 40; ++i) directory_.Report("other", absl::UnavailableError(std::to_string(i)));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2 + 8) << log;
}

TEST_F(WorkerDirectoryTest, AnAddressOfBothRolesIsRefusedWhole) {
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  directory_.Report("dns", WorkerLists{{"d0:1", "p1:1"}, {}});
  EXPECT_EQ(directory_.lists(), (WorkerLists{{"p0:1"}, {"d0:1"}}));
  directory_.Report("dns", WorkerLists{{"p1:1"}, {}});
  EXPECT_EQ(directory_.lists(), (WorkerLists{{"p0:1", "p1:1"}, {"d0:1"}}));
}

TEST_F(WorkerDirectoryTest, AnAddressThatAFailedSourceKeepsMayPassOnToTheOtherRole) {
  directory_.Report("prefill", WorkerLists{{"a:1", "b:1"}, {}});
  directory_.Report("decode", WorkerLists{{}, {"c:1"}});
  directory_.Report("prefill", absl::NotFoundError("no endpoint is ready"));
  directory_.Report("decode", WorkerLists{{}, {"a:1", "d:1"}});
  EXPECT_EQ(directory_.lists(), (WorkerLists{{"b:1"}, {"a:1", "d:1"}}));
  directory_.Report("prefill", WorkerLists{{"a:1"}, {}});
  EXPECT_EQ(directory_.lists(), (WorkerLists{{"b:1"}, {"a:1", "d:1"}})) << "both are fresh: neither is guessed right";
}

TEST_F(WorkerDirectoryTest, AnOperatorAddsAndRemovesWhatNobodyElseLists) {
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  EXPECT_TRUE(directory_.Add(WorkerRole::kDecode, "d1:1").ok());
  EXPECT_EQ(heard_.back(), (WorkerLists{{"p0:1"}, {"d0:1", "d1:1"}}));
  EXPECT_EQ(directory_.Add(WorkerRole::kDecode, "p0:1").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(directory_.Remove("d0:1").message(), "d0:1 is listed by file: take it off there, or drain it");
  EXPECT_TRUE(directory_.Remove("d1:1").ok());
  EXPECT_EQ(heard_.back(), (WorkerLists{{"p0:1"}, {"d0:1"}}));
  EXPECT_EQ(directory_.Remove("d1:1").code(), absl::StatusCode::kNotFound);
}

TEST_F(WorkerDirectoryTest, AWorkerThatDrainsIsLeftOutUntilItIsAddedOrGone) {
  const WorkerLists both{{"p0:1"}, {"d0:1", "d1:1"}};
  directory_.Report("file", both);
  EXPECT_TRUE(directory_.Drain("d0:1").ok());
  EXPECT_EQ(heard_.back(), (WorkerLists{{"p0:1"}, {"d1:1"}}));
  directory_.Report("file", both);
  EXPECT_EQ(directory_.lists(), (WorkerLists{{"p0:1"}, {"d1:1"}})) << "though it is still listed";
  EXPECT_TRUE(directory_.Add(WorkerRole::kDecode, "d0:1").ok());
  EXPECT_EQ(directory_.lists(), both);
  EXPECT_TRUE(directory_.Drain("d1:1").ok());
  directory_.Report("file", WorkerLists{{"p0:1"}, {"d0:1"}});
  directory_.Report("file", both);
  EXPECT_EQ(directory_.lists(), both) << "it had gone in between: this is another one";
  EXPECT_EQ(directory_.Drain("nobody:1").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem::router
