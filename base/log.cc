#include "base/log.h"

#include <unistd.h>

#include "absl/strings/str_format.h"
#include "base/clock.h"

namespace tandem::base {
namespace {

std::string& LogContext() {
  static std::string* context = new std::string;
  return *context;
}

const char* SeverityName(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kInfo:
      return "INFO";
    case LogSeverity::kWarning:
      return "WARNING";
    case LogSeverity::kError:
      return "ERROR";
  }
  return "ERROR";
}

bool NeedsQuotes(absl::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

void AppendValue(std::string& line, absl::string_view value) {
  if (!NeedsQuotes(value)) {
    line.append(value.data(), value.size());
    return;
  }
  line.push_back('"');
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      line.push_back('\\');
      line.push_back(c);
    } else if (c == '\n') {
      line.append("\\n");
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      line.append(absl::StrFormat("\\x%02x", static_cast<unsigned char>(c)));
    } else {
      line.push_back(c);
    }
  }
  line.push_back('"');
}

}  // namespace

void SetLogContext(absl::string_view context) { LogContext() = std::string(context); }

std::string FormatLogLine(LogSeverity severity, const char* file, int line, absl::string_view event,
                          std::initializer_list<LogField> fields) {
  std::string text = absl::StrCat(SeverityName(severity), " ", file, ":", line, " ", event);
  if (!LogContext().empty()) absl::StrAppend(&text, " ", LogContext());
  for (const LogField& field : fields) {
    absl::StrAppend(&text, " ", field.key, "=");
    AppendValue(text, field.value);
  }
  return text;
}

void Log(LogSeverity severity, const char* file, int line, absl::string_view event,
         std::initializer_list<LogField> fields) {
  const std::string text =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", RealClock().WallTime(), absl::UTCTimeZone()), " ",
                   FormatLogLine(severity, file, line, event, fields), "\n");
  // A log line that stderr does not take (a full disk, a closed pipe) is lost; nobody can be told.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tandem::base
