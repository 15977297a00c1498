#include "base/file_stamp.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tandem::base {
namespace {

void Write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }

TEST(FileStampTest, TellsEveryKindOfChange) {
  const std::string file = testing::TempDir() + "/file_stamp", other = file + ".new";
  Write(file, "one");
  const std::string first = FileStamp({file});
  EXPECT_EQ(FileStamp({file}), first) << "read twice, changed never";
  Write(file, "longer");
  const std::string grown = FileStamp({file});
  EXPECT_NE(grown, first);
  Write(other, "longer");
  ASSERT_EQ(std::rename(other.c_str(), file.c_str()), 0);
  const std::string renamed = FileStamp({file});
  EXPECT_NE(renamed, grown) << "another file of the same size in its place";
  ASSERT_EQ(std::remove(file.c_str()), 0);
  EXPECT_NE(FileStamp({file}), renamed);
  EXPECT_EQ(FileStamp({file}), FileStamp({other})) << "neither is there";
  EXPECT_NE(FileStamp({file, other}), FileStamp({file})) << "one stamp of all files";
}

}  // namespace
}  // namespace tandem::base
