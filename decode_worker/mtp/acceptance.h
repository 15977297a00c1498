// How often drafts of each place in a window came true of late, given that those before them did.
//
// Counts that fade: a few dozen windows decide. Begins with a guess that a few windows overrule, so that a new sequence
// neither drafts in vain for long nor starts without drafts. Tested by draft_length_test.cc.
#pragma once

#include <array>
#include <cstddef>

namespace tandem::decode {

inline constexpr int kDraftsMax = 15;  // of a window; worker_shell/cluster_config.cc bounds num_steps by it

class Acceptance final {
 public:
  // A window of so many drafts, of which the first num_accepted came true.
  void Note(int num_drafts, int num_accepted) {
    for (int place = 0; place < num_drafts && place <= num_accepted; ++place) {
      Place& seen = places_[static_cast<size_t>(place)];
      seen.windows = seen.windows * kFade + 1;
      seen.hits = seen.hits * kFade + (place < num_accepted ? 1 : 0);
    }
  }
  // That the draft of this place comes true where all before it did. place: from 0.
  double Chance(int place) const {
    const Place& seen = places_[static_cast<size_t>(place)];
    return (kGuess * kGuessWindows + seen.hits) / (kGuessWindows + seen.windows);
  }
  // Tokens that a window of so many drafts is expected to bring, the one that is drawn in any case included.
  double ExpectedTokens(int num_drafts) const {
    double tokens = 1, reached = 1;
    for (int place = 0; place < num_drafts; ++place) {
      reached *= Chance(place);
      tokens += reached;
    }
    return tokens;
  }

 private:
  static constexpr float kFade = 0.97f;
  static constexpr double kGuess = 0.7;
  static constexpr double kGuessWindows = 2;
  struct Place {
    float windows = 0;
    float hits = 0;
  };
  std::array<Place, kDraftsMax> places_ = {};
};

}  // namespace tandem::decode
