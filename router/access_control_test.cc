// Which key opens which path, and that nothing of a key is ever told.
#include "router/access_control.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

constexpr char kClient[] = "client-key-1", kOther[] = "client-key-2", kAdmin[] = "admin-key-1";

bool Opens(const AccessControl& control, RouteAccess access, const std::string& authorization) {
  const absl::Status status = control.Check(access, authorization).status();
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
  }
  return status.ok();
}
std::string Bearer(const std::string& key) { return "Bearer " + key; }

TEST(AccessControlTest, WithoutKeysEverythingIsOpen) {
  for (const RouteAccess access : {RouteAccess::kOpen, RouteAccess::kClient, RouteAccess::kAdmin}) {
    EXPECT_TRUE(Opens(AccessControl(), access, ""));
    EXPECT_TRUE(Opens(AccessControl(), access, "Bearer none")) << "clients send some key, needed or not";
  }
}

TEST(AccessControlTest, ClientKeysOpenAllPathsWhereThereAreNoOthers) {
  const AccessControl control({kClient, kOther}, {});
  for (const RouteAccess access : {RouteAccess::kClient, RouteAccess::kAdmin}) {
    EXPECT_TRUE(Opens(control, access, Bearer(kClient)));
    EXPECT_TRUE(Opens(control, access, Bearer(kOther)));
    EXPECT_TRUE(Opens(control, access, "bearer  client-key-2 "));
    EXPECT_FALSE(Opens(control, access, ""));
    EXPECT_FALSE(Opens(control, access, Bearer("client-key-")));
    EXPECT_FALSE(Opens(control, access, Bearer("client-key-11")));
    EXPECT_FALSE(Opens(control, access, Bearer("")));
    EXPECT_FALSE(Opens(control, access, kClient));
    EXPECT_FALSE(Opens(control, access, std::string("Basic ") + kClient));
  }
  EXPECT_TRUE(Opens(control, RouteAccess::kOpen, ""));
}

TEST(AccessControlTest, AdminKeysKeepClientsFromAdminPaths) {
  const AccessControl control({kClient}, {kAdmin});
  EXPECT_TRUE(Opens(control, RouteAccess::kClient, Bearer(kClient)));
  EXPECT_FALSE(Opens(control, RouteAccess::kAdmin, Bearer(kClient)));
  EXPECT_TRUE(Opens(control, RouteAccess::kAdmin, Bearer(kAdmin)));
  EXPECT_TRUE(Opens(control, RouteAccess::kClient, Bearer(kAdmin)));
  const AccessControl admin_alone({}, {kAdmin});
  EXPECT_TRUE(Opens(admin_alone, RouteAccess::kClient, ""));
  EXPECT_FALSE(Opens(admin_alone, RouteAccess::kAdmin, ""));
  EXPECT_TRUE(Opens(admin_alone, RouteAccess::kAdmin, Bearer(kAdmin)));
}

TEST(AccessControlTest, KeysComeFromAFileAndAVariable) {
  const std::string file = absl::StrCat(testing::TempDir(), "/access_keys");
  std::ofstream(file) << "from-the-file\n";
  setenv("TANDEM_ACCESS_CONTROL_TEST", "from-the-variable", 1);
  EXPECT_EQ(LoadAccessKeys(file, "TANDEM_ACCESS_CONTROL_TEST").value(),
            (std::vector<std::string>{"from-the-file", "from-the-variable"}));
  EXPECT_TRUE(LoadAccessKeys("", "").value().empty());
  EXPECT_EQ(LoadAccessKeys(file + ".none", "").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadAccessKeys("", "TANDEM_ACCESS_CONTROL_TEST_NONE").status().code(), absl::StatusCode::kNotFound);
}

TEST(AccessControlTest, CallersAreToldApartByTheirKeys) {
  const AccessControl control =
      AccessControl::WithPriorities(ClientKeys{{kClient, kOther}, {Priority::kNormal, Priority::kLow}}, {kAdmin});
  const Caller client = control.Check(RouteAccess::kClient, Bearer(kClient)).value();
  const Caller other = control.Check(RouteAccess::kClient, Bearer(kOther)).value();
  const Caller admin = control.Check(RouteAccess::kClient, Bearer(kAdmin)).value();
  EXPECT_NE(client.key, other.key);
  EXPECT_NE(client.key, admin.key);
  EXPECT_NE(other.key, admin.key);
  EXPECT_EQ(client.priority, Priority::kNormal);
  EXPECT_EQ(other.priority, Priority::kLow);
  EXPECT_EQ(admin.priority, Priority::kHigh);
  EXPECT_EQ(AccessControl().Check(RouteAccess::kClient, Bearer(kClient)).value().key, 0) << "nobody is told apart";
}

TEST(AccessControlTest, BehindAKeyMayStandItsPriority) {
  const std::string file = absl::StrCat(testing::TempDir(), "/client_keys");
  std::ofstream(file) << "# three\nclient-key-1\nclient-key-2 priority=low\nclient-key-3\tpriority=high \n";
  const ClientKeys keys = LoadClientKeys(file, "").value();
  EXPECT_EQ(keys.keys, (std::vector<std::string>{"client-key-1", "client-key-2", "client-key-3"}));
  EXPECT_EQ(keys.priorities, (std::vector<Priority>{Priority::kNormal, Priority::kLow, Priority::kHigh}));
  for (const char* text : {"client-key-1 low", "client-key-1 priority=urgent", "client-key-1 priority=low more"}) {
    std::ofstream(file) << text;
    EXPECT_EQ(LoadClientKeys(file, "").status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_FALSE(LoadAccessKeys(file, "").ok()) << "administrators have one priority: " << text;
  }
}

}  // namespace
}  // namespace tandem::router
