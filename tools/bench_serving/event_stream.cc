#include "tools/bench_serving/event_stream.h"

#include "absl/strings/strip.h"

namespace tandem::bench_serving {

void EventStream::Append(absl::string_view bytes, absl::FunctionRef<void(absl::string_view)> take) {
  if (is_after_cr_ && !bytes.empty()) {
    absl::ConsumePrefix(&bytes, "\n");
    is_after_cr_ = false;
  }
  for (;;) {
    const size_t end = bytes.find_first_of("\r\n");
    if (end == absl::string_view::npos) break;
    if (line_.empty()) {
      TakeLine(bytes.substr(0, end), take);
    } else {
      line_.append(bytes.data(), end);
      TakeLine(line_, take);
      line_.clear();
    }
    const bool is_cr = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (is_cr && bytes.empty()) is_after_cr_ = true;
    if (is_cr) absl::ConsumePrefix(&bytes, "\n");
  }
  line_.append(bytes.data(), bytes.size());
}

void EventStream::TakeLine(absl::string_view line, absl::FunctionRef<void(absl::string_view)> take) {
  if (line.empty()) {
    if (has_data_) take(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (!absl::ConsumePrefix(&line, "data") || (!line.empty() && line[0] != ':')) return;
  absl::ConsumePrefix(&line, ":");
  absl::ConsumePrefix(&line, " ");
  if (has_data_) data_.push_back('\n');
  data_.append(line.data(), line.size());
  has_data_ = true;
}

}  // namespace tandem::bench_serving
