// Whether files have changed since they were read: whoever renews one (a certificate manager, a mounted secret) need
// tell nobody. Tested by file_stamp_test.cc.
#pragma once

#include <string>
#include <vector>

namespace tandem::base {

// Differs where a file is another one, has come or gone, or was written since. To be taken before the files are read.
std::string FileStamp(const std::vector<std::string>& files);

}  // namespace tandem::base
