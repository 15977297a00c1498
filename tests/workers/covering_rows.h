// For tests: few settings of many switches among which every pair of switches is met in all four ways.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "absl/types/span.h"

namespace tandem::tests {

using SwitchRow = std::vector<bool>;               // by switch
using Meeting = std::tuple<int, int, bool, bool>;  // two switches, first < second, and how they stand

inline std::set<Meeting> MeetingsOf(const SwitchRow& row) {
  std::set<Meeting> meetings;
  for (int a = 0; a < static_cast<int>(row.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(row.size()); ++b) meetings.emplace(a, b, row[a], row[b]);
  }
  return meetings;
}

// Every meeting but those that are refused. Greedy: each row is the best of many drawn ones, from a fixed seed. The
// first row is all off, which nobody refuses.
inline std::vector<SwitchRow> CoveringRows(int num_switches, absl::Span<const Meeting> refused) {
  std::set<Meeting> open;
  for (int a = 0; a < num_switches; ++a) {
    for (int b = a + 1; b < num_switches; ++b) {
      for (const bool of_a : {false, true}) {
        for (const bool of_b : {false, true}) open.emplace(a, b, of_a, of_b);
      }
    }
  }
  for (const Meeting& meeting : refused) open.erase(meeting);
  std::vector<SwitchRow> rows;
  const auto take = [&](const SwitchRow& row) {
    for (const Meeting& meeting : MeetingsOf(row)) open.erase(meeting);
    rows.push_back(row);
  };
  take(SwitchRow(num_switches, false));
  std::mt19937 rng(1);
  while (!open.empty()) {
    SwitchRow best;
    int best_new = 0;
    for (int candidate = 0; candidate < 1000; ++candidate) {
      const auto [first, second, of_first, of_second] = *open.begin();  // it is met in any case
      SwitchRow row;
      for (int i = 0; i < num_switches; ++i) row.push_back((rng() & 1) != 0);
      row[first] = of_first;
      row[second] = of_second;
      // One of two that do not go together gives way, not one of the pair; twice, as that may refuse another.
      bool is_refused = false;
      for (int pass = 0; pass < 3; ++pass) {
        is_refused = false;
        for (const auto& [a, b, of_a, of_b] : refused) {
          if (row[a] != of_a || row[b] != of_b) continue;
          is_refused = true;
          const int yields = a == first || a == second ? b : a;
          row[yields] = !row[yields];
        }
      }
      if (is_refused || row[first] != of_first || row[second] != of_second) continue;
      int num_new = 0;
      for (const Meeting& meeting : MeetingsOf(row)) num_new += static_cast<int>(open.count(meeting));
      if (num_new > best_new) {
        best = row;
        best_new = num_new;
      }
    }
    take(best);
  }
  return rows;
}

}  // namespace tandem::tests
