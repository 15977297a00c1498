#include "base/file_stamp.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"

namespace tandem::base {

std::string FileStamp(const std::vector<std::string>& files) {
  std::string stamp;
  for (const std::string& file : files) {
    struct stat status = {};
    if (stat(file.c_str(), &status) != 0) {
      stamp += "missing;";
      continue;
    }
    absl::StrAppend(&stamp, status.st_dev, ".", status.st_ino, ".", status.st_size, ".", status.st_mtim.tv_sec, ".",
                    status.st_mtim.tv_nsec, ";");
  }
  return stamp;
}

}  // namespace tandem::base
