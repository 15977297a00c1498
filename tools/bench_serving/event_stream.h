// Server-sent events as they arrive: bytes in any pieces, the `data` of each event out.
//
// Comments and other fields are passed over, several data lines of one event are joined by \n, lines end with \n, \r\n
// or \r (WHATWG HTML, 9.2.6). Tested by event_stream_test.cc: every split of a stream gives what the whole gives.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace tandem::bench_serving {

class EventStream final {
 public:
  // Calls take(data) for each event that these bytes complete.
  void Append(absl::string_view bytes, absl::FunctionRef<void(absl::string_view)> take);
  // Bytes of an event that has not ended.
  bool has_rest() const { return !line_.empty() || has_data_; }

 private:
  void TakeLine(absl::string_view line, absl::FunctionRef<void(absl::string_view)> take);

  std::string line_;  // its end has not come
  std::string data_;  // of the event under way
  bool has_data_ = false;
  bool is_after_cr_ = false;  // a \n that comes now belongs to it
};

}  // namespace tandem::bench_serving
