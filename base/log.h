// key=value log lines on stderr, one write(2) each:
//   2026-11-30T13:45:01.123456Z INFO decode_worker/engine.cc:88 request ended req=7f.. tokens=128
//
//   LOG_INFO("request ended", {"req", id}, {"tokens", count});
//
// INFO: lifecycle and one line per request. WARNING: a person should look some day. ERROR: now. Nothing per token.
// Never a prompt, never a secret. Tested by log_test.cc.
#pragma once

#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::base {

enum class LogSeverity { kInfo, kWarning, kError };

struct LogField {
  LogField(absl::string_view k, const absl::AlphaNum& v) : key(k), value(v.Piece()) {}
  LogField(absl::string_view k, const absl::Status& v) : key(k), value(v.ToString()) {}
  LogField(absl::string_view k, absl::Duration v) : key(k), value(absl::FormatDuration(v)) {}
  absl::string_view key;
  std::string value;
};

// Set once by main before any thread starts: role=... instance=... on every line.
void SetLogContext(absl::string_view context);
void Log(LogSeverity severity, const char* file, int line, absl::string_view event,
         std::initializer_list<LogField> fields);
// The line as it would be written, without the timestamp: for tests.
std::string FormatLogLine(LogSeverity severity, const char* file, int line, absl::string_view event,
                          std::initializer_list<LogField> fields);

}  // namespace tandem::base

#define TANDEM_LOG_AT(severity, event, ...) \
  ::tandem::base::Log(::tandem::base::LogSeverity::severity, __FILE__, __LINE__, event, {__VA_ARGS__})
#define LOG_INFO(event, ...) TANDEM_LOG_AT(kInfo, event, __VA_ARGS__)
#define LOG_WARNING(event, ...) TANDEM_LOG_AT(kWarning, event, __VA_ARGS__)
#define LOG_ERROR(event, ...) TANDEM_LOG_AT(kError, event, __VA_ARGS__)
