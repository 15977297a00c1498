#include "model/token_mask/testing/plain_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::model::testing {
namespace {

constexpr int64_t kNever = int64_t{1} << 40;
constexpr size_t kStacksMax = 300;

std::string Utf8(uint32_t c) {
  std::string text;
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) {
    text = {static_cast<char>(0xC0 | c >> 6)};
  } else if (c < 0x10000) {
    text = {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F))};
  } else {
    text = {static_cast<char>(0xF0 | c >> 18), static_cast<char>(0x80 | (c >> 12 & 0x3F)),
            static_cast<char>(0x80 | (c >> 6 & 0x3F))};
  }
  text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
  return text;
}

bool Has(const std::vector<CharRange>& set, uint32_t c) {
  return std::any_of(set.begin(), set.end(), [c](const CharRange& r) { return r.first <= c && c <= r.last; });
}

}  // namespace

PlainMatcher::PlainMatcher(const ConstraintSpec& spec, const std::vector<std::string>& token_bytes)
    : spec_(spec), token_bytes_(token_bytes), length_to_end_(spec.states.size(), kNever) {
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const ConstraintState& state = spec_.states[i];
      int64_t best = state.is_accepting ? 0 : length_to_end_[i];
      for (const auto& step : state.chars) best = std::min(best, 1 + length_to_end_[step.to]);
      for (const auto& step : state.tokens) best = std::min(best, 1 + length_to_end_[step.to]);
      for (const auto& step : state.calls) best = std::min(best, length_to_end_[step.what] + length_to_end_[step.to]);
      changes = changes || best < length_to_end_[i];
      length_to_end_[i] = best;
    }
  }
  point_.stacks.insert(Stack{spec.first_state});
  Close(&point_.stacks);
}

void PlainMatcher::Close(std::set<Stack>* stacks) const {
  std::vector<Stack> open(stacks->begin(), stacks->end());
  while (!open.empty()) {
    has_given_up_ = has_given_up_ || stacks->size() > kStacksMax;
    if (has_given_up_) return;
    const Stack stack = std::move(open.back());
    open.pop_back();
    const auto add = [&](Stack next) {
      if (stacks->insert(next).second) open.push_back(std::move(next));
    };
    const ConstraintState& state = spec_.states[stack.back()];
    for (const auto& call : state.calls) {
      Stack next = stack;
      next.back() = call.to;
      next.push_back(call.what);
      if (next.size() < 40) add(std::move(next));
    }
    if (state.is_accepting && stack.size() > 1) add(Stack(stack.begin(), stack.end() - 1));
  }
}

std::set<PlainMatcher::Stack> PlainMatcher::Step(const std::set<Stack>& stacks, uint32_t c) const {
  std::set<Stack> next;
  for (const Stack& stack : stacks) {
    for (const auto& step : spec_.states[stack.back()].chars) {
      if (!Has(spec_.char_sets[step.what], c)) continue;
      Stack stepped = stack;
      stepped.back() = step.to;
      next.insert(std::move(stepped));
    }
  }
  Close(&next);
  return next;
}

int64_t PlainMatcher::LengthToEnd(const Stack& stack) const {
  int64_t length = 0;
  for (const uint32_t state : stack) length = std::min(kNever, length + length_to_end_[state]);
  return length;
}

bool PlainMatcher::IsAlive(const std::set<Stack>& stacks) const {
  return std::any_of(stacks.begin(), stacks.end(), [this](const Stack& stack) { return LengthToEnd(stack) < kNever; });
}

bool PlainMatcher::StepBytes(const std::string& bytes, Point* point) const {
  for (const char byte : bytes) {
    point->rest.push_back(byte);
    // Every character whose UTF-8 begins with `rest`, tried one by one.
    bool is_complete = false, may_become = false;
    const size_t length = point->rest.size();
    for (const auto& set : spec_.char_sets) {
      for (const CharRange& range : set) {
        for (uint32_t c = range.first; c <= range.last && !is_complete; ++c) {
          const std::string utf8 = Utf8(c);
          if (utf8.size() < length || utf8.compare(0, length, point->rest) != 0) continue;
          if (!IsAlive(Step(point->stacks, c))) continue;
          if (utf8.size() == length) {
            point->stacks = Step(point->stacks, c);
            is_complete = true;
          }
          may_become = true;
        }
      }
    }
    if (is_complete) point->rest.clear();
    if (!may_become) return false;
  }
  return true;
}

bool PlainMatcher::StepTo(int32_t token, Point* point) const {
  if (point->has_ended) return false;
  const auto& ends = spec_.end_tokens;
  if (may_end() && std::find(ends.begin(), ends.end(), static_cast<uint32_t>(token)) != ends.end()) {
    point->has_ended = true;
    return true;
  }
  if (!token_bytes_[token].empty()) return StepBytes(token_bytes_[token], point);
  if (!point->rest.empty()) return false;
  std::set<Stack> next;
  for (const Stack& stack : point->stacks) {
    for (const auto& step : spec_.states[stack.back()].tokens) {
      if (step.what != static_cast<uint32_t>(token)) continue;
      Stack stepped = stack;
      stepped.back() = step.to;
      next.insert(std::move(stepped));
    }
  }
  Close(&next);
  point->stacks = std::move(next);
  return IsAlive(point->stacks);
}

bool PlainMatcher::MayFollow(int32_t token) const {
  Point point = point_;
  return StepTo(token, &point);
}

void PlainMatcher::Accept(int32_t token) {
  TANDEM_CHECK(StepTo(token, &point_) || has_given_up_, "a token that may follow");
}

bool PlainMatcher::may_end() const {
  return point_.rest.empty() && !point_.has_ended &&
         std::any_of(point_.stacks.begin(), point_.stacks.end(),
                     [this](const Stack& stack) { return stack.size() == 1 && spec_.states[stack[0]].is_accepting; });
}

std::string PlainMatcher::ShortestEnd() const {
  std::string text;
  PlainMatcher ahead = *this;
  while (!ahead.may_end()) {
    std::set<Stack> best;
    int64_t best_length = kNever;
    uint32_t best_char = 0;
    for (const Stack& stack : ahead.point_.stacks) {
      for (const auto& step : spec_.states[stack.back()].chars) {
        const uint32_t c = spec_.char_sets[step.what][0].first;
        std::set<Stack> next = Step(ahead.point_.stacks, c);
        int64_t length = kNever;
        for (const Stack& after : next) length = std::min(length, LengthToEnd(after));
        if (length >= best_length) continue;
        best_length = length;
        best = std::move(next);
        best_char = c;
      }
    }
    TANDEM_CHECK(best_length < kNever, "a living matcher has a way to an end");
    ahead.point_.stacks = std::move(best);
    text += Utf8(best_char);
  }
  return text;
}

}  // namespace tandem::model::testing
