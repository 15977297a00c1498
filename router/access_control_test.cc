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
  const absl::Status status = control.Check(access, authorization);
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

}  // namespace
}  // namespace tandem::router
