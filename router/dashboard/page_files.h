// The files of the page: they are in the binary, since a router has no folder to read them from.
//
// Static and without secrets, so they are for everybody; what the page shows it asks for with a key. The headers let it
// load and ask nothing but this router, run no code but its own files', and turn no text into markup: what models,
// clients and workers say cannot become part of it. Tested by page_files_test.cc and tests/e2e/dashboard_test.py.
#pragma once

#include "absl/strings/string_view.h"
#include "router/http/http_message.h"

namespace tandem::router {

struct PageFile {
  const char* path;  // of the URL
  const char* content_type;
  absl::string_view body;
};

inline constexpr char kDashboardPath[] = "/dashboard";

// nullptr where there is none.
const PageFile* FindPageFile(absl::string_view path);
HttpResponse PageFileResponse(const PageFile& file);

}  // namespace tandem::router
