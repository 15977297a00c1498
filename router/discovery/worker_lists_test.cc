#include "router/discovery/worker_lists.h"

#include <fstream>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

std::string ErrorOf(const std::string& yaml) {
  const auto lists = ParseWorkerFile(yaml, "workers.yaml");
  return lists.ok() ? "" : std::string(lists.status().message());
}

TEST(WorkerListsTest, AFileNamesBothRoles) {
  const auto lists =
      ParseWorkerFile("prefill_workers: [10.0.0.1:8101, p-1.pods:8101]\ndecode_workers:\n- '[fd00::1]:8102'\n", "f");
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_EQ(lists->prefill, (std::set<std::string>{"10.0.0.1:8101", "p-1.pods:8101"}));
  EXPECT_EQ(lists->decode, (std::set<std::string>{"[fd00::1]:8102"}));
}

TEST(WorkerListsTest, NoWorkerIsSaidByAnEmptyList) {
  const auto lists = ParseWorkerFile("prefill_workers: []\ndecode_workers: []\n", "f");
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_EQ(*lists, WorkerLists());
}

TEST(WorkerListsTest, AFileThatIsCutShortAnywhereIsWholeOrRefused) {
  const std::string whole = "prefill_workers: [10.0.0.1:8101]\ndecode_workers: [10.0.0.2:8102]\n";
  for (size_t length = 0; length + 2 < whole.size(); ++length) {
    EXPECT_NE(ErrorOf(whole.substr(0, length)), "") << whole.substr(0, length);
  }
}

TEST(WorkerListsTest, FaultsAreNamedOnOneLine) {
  EXPECT_EQ(ErrorOf(""), "workers.yaml: prefill_workers is missing; [] says that there is none");
  EXPECT_EQ(ErrorOf("prefill_workers: []\n"), "workers.yaml: decode_workers is missing; [] says that there is none");
  for (const char* bad :
       {"prefill_workers: [a:1]\ndecode_workers: [a:1]\n", "prefill_workers: [0.0.0.0:1]\ndecode_workers: []\n",
        "prefill_workers: [a]\ndecode_workers: []\n", "prefill_workers: 7\ndecode_workers: x\n",
        "prefil_workers: []\ndecode_workers: []\n", "prefill_workers: [", "- a\n"}) {
    const std::string error = ErrorOf(bad);
    EXPECT_EQ(error.rfind("workers.yaml:", 0), 0u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(WorkerListsTest, AMissingFileIsNamed) {
  const auto lists = ReadWorkerFile("/no/such/workers.yaml");
  EXPECT_EQ(lists.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(lists.status().message().find("/no/such/workers.yaml"), absl::string_view::npos);
}

TEST(WorkerListsTest, OneAddressInTwoSpellingsIsNamedTwice) {
  EXPECT_FALSE(CheckedWorkerLists({"localhost:1"}, {"127.0.0.1:1"}, "process.").ok());
}

}  // namespace
}  // namespace tandem::router
