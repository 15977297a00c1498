#include "router/discovery/dns_workers.h"

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

ResolveHost Answers(absl::StatusOr<std::vector<std::string>> answer) {
  return [answer](const std::string&) { return answer; };
}

TEST(DnsWorkersTest, EveryAddressOfTheNameIsAWorker) {
  const auto lists = FindDnsWorkers("prefill.tandem:8101", WorkerRole::kPrefill,
                                    Answers(std::vector<std::string>{"10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.2"}));
  ASSERT_TRUE(lists.ok()) << lists.status();
  EXPECT_EQ(*lists, (WorkerLists{{"10.0.0.1:8101", "10.0.0.2:8101", "[fd00::1]:8101"}, {}}));
  const auto decode = FindDnsWorkers("d:1", WorkerRole::kDecode, Answers(std::vector<std::string>{"10.0.0.1"}));
  EXPECT_EQ(*decode, (WorkerLists{{}, {"10.0.0.1:1"}}));
}

TEST(DnsWorkersTest, NoAddressIsAnErrorNotAnEmptyList) {
  EXPECT_FALSE(FindDnsWorkers("d:1", WorkerRole::kDecode, Answers(std::vector<std::string>{})).ok());
  EXPECT_FALSE(FindDnsWorkers("d:1", WorkerRole::kDecode, Answers(absl::UnavailableError("time-out"))).ok());
}

TEST(DnsWorkersTest, TheSystemsResolverGivesNumericAddresses) {
  const auto numeric = ResolveBySystem("127.0.0.1");
  ASSERT_TRUE(numeric.ok()) << numeric.status();
  EXPECT_EQ(*numeric, std::vector<std::string>{"127.0.0.1"});
  const auto unknown = ResolveBySystem("no-such-host.invalid");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("no-such-host.invalid"), absl::string_view::npos);
}

}  // namespace
}  // namespace tandem::router
