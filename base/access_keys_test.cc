// The form of key files, and that nothing of a key is ever told.
#include "base/access_keys.h"

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem::base {
namespace {

TEST(AccessKeysTest, KeysStandOneALine) {
  EXPECT_EQ(ParseAccessKeys("# mine\n\n  key-number-1 \r\nkey-number-2", "f").value(),
            (std::vector<std::string>{"key-number-1", "key-number-2"}));
  for (const char* text : {"", "#\n", "short", "key with space", "key-\x7f-number"}) {
    const absl::Status status = ParseAccessKeys(text, "the file").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StartsWith(status.message(), "the file: ")) << status;
    if (*text != '\0') {
      EXPECT_FALSE(absl::StrContains(status.message(), text)) << "a key is never told";
    }
  }
}

TEST(AccessKeysTest, AreReadFromAFile) {
  const std::string file = testing::TempDir() + "/access_keys_file";
  std::ofstream(file) << "key-number-1\n# old\nkey-number-2\n";
  EXPECT_EQ(ReadAccessKeyFile(file).value(), (std::vector<std::string>{"key-number-1", "key-number-2"}));
  EXPECT_EQ(ReadAccessKeyFile(file + ".none").status().code(), absl::StatusCode::kNotFound);
}

TEST(AccessKeysTest, DigestsKnowTheirKeysAlone) {
  const AccessKeyDigests digests({"key-number-1", "key-number-2"});
  EXPECT_TRUE(digests.Has("key-number-1"));
  EXPECT_TRUE(digests.Has("key-number-2"));
  for (const char* other : {"", "key-number-", "key-number-11", "KEY-NUMBER-1", "key-number-1 "}) {
    EXPECT_FALSE(digests.Has(other)) << other;
  }
  EXPECT_TRUE(AccessKeyDigests().empty());
  EXPECT_FALSE(AccessKeyDigests().Has(""));
}

TEST(AccessKeysTest, BearerKeysStandBehindTheirScheme) {
  EXPECT_EQ(BearerKey("Bearer key-number-1"), "key-number-1");
  EXPECT_EQ(BearerKey("bearer  key-number-1 "), "key-number-1");
  for (const char* text : {"", "Bearer", "Bearer ", "Basic key-number-1", "key-number-1"})
    EXPECT_EQ(BearerKey(text), "");
}

}  // namespace
}  // namespace tandem::base
