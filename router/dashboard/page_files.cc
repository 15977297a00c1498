#include "router/dashboard/page_files.h"

#include <string>

namespace tandem::router {
namespace {

#include "router/dashboard/page_texts.inc"

constexpr char kHtml[] = "text/html; charset=utf-8";
constexpr char kCss[] = "text/css; charset=utf-8";
constexpr char kScript[] = "text/javascript; charset=utf-8";
constexpr char kSvg[] = "image/svg+xml";
constexpr char kPlain[] = "text/plain; charset=utf-8";

constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const PageFile kFiles[] = {
    {kDashboardPath, kHtml, kPageHtml},
    {"/dashboard/page.css", kCss, kPageCss},
    {"/dashboard/icon.svg", kSvg, kIconSvg},
    {"/dashboard/page.js", kScript, kPageJs},
    {"/dashboard/chat.js", kScript, kChatJs},
    {"/dashboard/elements.js", kScript, kElementsJs},
    {"/dashboard/figures.js", kScript, kFiguresJs},
    {"/dashboard/pools.js", kScript, kPoolsJs},
    {"/dashboard/requests.js", kScript, kRequestsJs},
    {"/dashboard/runbook.js", kScript, kRunbookJs},
    {"/dashboard/server.js", kScript, kServerJs},
    {"/dashboard/trends.js", kScript, kTrendsJs},
    {"/dashboard/operations.md", kPlain, kOperationsMd},
};

}  // namespace

const PageFile* FindPageFile(absl::string_view path) {
  for (const PageFile& file : kFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

HttpResponse PageFileResponse(const PageFile& file) {
  HttpResponse response;
  response.content_type = file.content_type;
  response.body = std::string(file.body);
  response.headers = {{"Content-Security-Policy", kPolicy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"},
                      {"Cache-Control", "no-cache"}};  // a router of another revision has another page
  return response;
}

}  // namespace tandem::router
