#include "tests/sim/client_request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::sim {
namespace {

constexpr int kCutsHarmless = 3;
constexpr int kFailuresHarmless = 2;  // fewer failures of workers without a token between end no answer

}  // namespace

std::string ClientRequest::Name() const {
  std::string name =
      absl::StrCat("request ", number, " (", order.prompt.size(), " prompt tokens; received of expected:");
  for (const Choice& choice : choices) {
    absl::StrAppend(&name, " ", choice.received.size(), "/", choice.expected.tokens.size());
  }
  return name + ")";
}

void ClientRequest::CheckTokens(const router::GeneratedTokens& tokens, Violations& violations) {
  if (tokens.choice < 0 || tokens.choice >= static_cast<int>(choices.size())) {
    violations.Add(absl::StrCat(Name(), ": tokens of choice ", tokens.choice));
    return;
  }
  Choice& choice = choices[tokens.choice];
  const auto wrong = [&](size_t position, absl::string_view what) {
    violations.Add(absl::StrCat(Name(), ": choice ", tokens.choice, " position ", position, ": ", what));
  };
  if (tokens.first_position > static_cast<int64_t>(choice.received.size())) {
    return wrong(tokens.first_position, "tokens before it are missing");
  }
  const size_t num_logprobs = order.wants_logprobs ? tokens.tokens.size() : 0;
  const size_t num_tops = order.num_top_logprobs > 0 ? tokens.tokens.size() : 0;
  if (tokens.logprobs.size() != num_logprobs || tokens.top_logprobs.size() != num_tops) {
    return wrong(tokens.first_position, "another number of log-probabilities than of tokens");
  }
  for (size_t i = 0; i < tokens.tokens.size(); ++i) {
    const size_t position = tokens.first_position + i;
    if (position >= choice.expected.tokens.size()) return wrong(position, "one token too many");
    if (tokens.tokens[i] != choice.expected.tokens[position]) {
      return wrong(position,
                   absl::StrCat("token ", tokens.tokens[i], ", the oracle says ", choice.expected.tokens[position]));
    }
    if (num_logprobs > 0) {
      const model::TokenLogprobs& expected = choice.expected.logprobs[position];
      bool is_right = tokens.logprobs[i] == expected.logprob;
      for (size_t place = 0; num_tops > 0 && place < order.num_top_logprobs; ++place) {
        const router::LikelyToken& top = tokens.top_logprobs[i].at(place);
        is_right &= top.token == static_cast<uint32_t>(expected.top_tokens[place]) &&
                    top.logprob == expected.top_logprobs[place];
      }
      if (!is_right) return wrong(position, "its log-probabilities are not the oracle's");
    }
    if (position != choice.received.size()) continue;
    choice.received.push_back(tokens.tokens[i]);
    num_fruitless_failures = 0;
  }
}

void ClientRequest::CheckComplete(Violations& violations) const {
  for (const Choice& choice : choices) {
    // What a stop string cuts away, and what comes after it while its cancel is under way, is nobody's.
    std::vector<uint32_t> shown = choice.expected.tokens;
    const auto& stop_ids = order.stop_token_ids;
    if (std::find(stop_ids.begin(), stop_ids.end(), shown.back()) != stop_ids.end()) shown.pop_back();
    size_t num_needed = choice.expected.tokens.size();
    if (stop_word.has_value()) {
      const auto cut = std::find(shown.begin(), shown.end(), *stop_word);
      if (cut != shown.end()) num_needed = cut - shown.begin() + 1;
      shown.erase(cut, shown.end());
    }
    if (choice.received.size() < num_needed) {
      violations.Add(absl::StrCat(Name(), ": complete with a choice that is not"));
    }
    std::string expected_text;
    for (const uint32_t token : shown) absl::StrAppend(&expected_text, token, " ");
    if (choice.text != expected_text) {
      violations.Add(absl::StrCat(Name(), ": text is \"", choice.text, "\", expected \"", expected_text, "\""));
    }
  }
}

void ClientRequest::CheckFailure(const FaultPlan& plan, Violations& violations) const {
  const bool has_little_time = time_limit < absl::InfiniteDuration();
  const bool has_tokens =
      std::any_of(choices.begin(), choices.end(), [](const Choice& c) { return !c.received.empty(); });
  if (has_tokens && !absl::IsDeadlineExceeded(error) && num_fruitless_failures < kFailuresHarmless) {
    violations.Add(absl::StrCat(Name(), ": failed after its first token with ", error.ToString()));
  }
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
    case absl::StatusCode::kInternal:  // that it has been on too many lost workers
      is_explained = num_fruitless_failures >= kFailuresHarmless && plan.HasFaults();
      break;
    default:
      break;  // a client is told of INVALID_ARGUMENT only where we, or it, are wrong
  }
  if (!is_explained) violations.Add(absl::StrCat(Name(), ": failed with ", error.ToString()));
}

}  // namespace tandem::sim
