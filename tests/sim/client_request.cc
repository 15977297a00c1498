#include "tests/sim/client_request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::sim {
namespace {

constexpr int kCutsHarmless = 3;

}  // namespace

std::string ClientRequest::Name() const {
  return absl::StrCat("request ", number, " (", order.prompt.size(), " prompt tokens, ", expected.size(), " expected, ",
                      received.size(), " received)");
}

void ClientRequest::CheckTokens(int64_t first_position, absl::Span<const uint32_t> tokens, Violations& violations) {
  if (first_position > static_cast<int64_t>(received.size())) {
    violations.Add(absl::StrCat(Name(), ": tokens are missing before position ", first_position));
    return;
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t position = first_position + i;
    if (position >= expected.size()) {
      violations.Add(absl::StrCat(Name(), ": token ", tokens[i], " at position ", position, " is one too many"));
      return;
    }
    if (tokens[i] != expected[position]) {
      violations.Add(absl::StrCat(Name(), ": token at position ", position, " is ", tokens[i], ", the oracle says ",
                                  expected[position]));
      return;
    }
    if (position == received.size()) received.push_back(tokens[i]);
  }
}

void ClientRequest::CheckComplete(Violations& violations) const {
  if (received != expected) violations.Add(absl::StrCat(Name(), ": complete with another number of tokens"));
  std::vector<uint32_t> shown = expected;
  const auto& stop_ids = order.stop_token_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), shown.back()) != stop_ids.end()) shown.pop_back();
  std::string expected_text;
  for (const uint32_t token : shown) absl::StrAppend(&expected_text, token, " ");
  if (text != expected_text) {
    violations.Add(absl::StrCat(Name(), ": text is \"", text, "\", expected \"", expected_text, "\""));
  }
}

void ClientRequest::CheckFailure(const FaultPlan& plan, Violations& violations) const {
  const bool has_little_time = time_limit < absl::InfiniteDuration();
  bool is_explained = false;
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
      // Streams alone lose nothing, unless they break faster than they can be opened.
      is_explained = plan.HasFaultsBesideCutStreams() || plan.router_link_cuts > kCutsHarmless;
      break;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kDataLoss:
      is_explained = plan.HasFaults();
      break;
    case absl::StatusCode::kResourceExhausted:
      is_explained = plan.num_requests > kSimLineMax;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      is_explained = has_little_time;
      break;
    default:
      break;  // a client is told INTERNAL or INVALID_ARGUMENT only where we, or it, are wrong
  }
  if (!is_explained) violations.Add(absl::StrCat(Name(), ": failed with ", error.ToString()));
}

}  // namespace tandem::sim
