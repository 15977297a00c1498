// Walks every path of a World, each state once, and stops at the first that breaks a rule.
#pragma once

#include <cstdio>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kvtransfer/enumeration_world.h"

namespace tandem::kvtransfer {

struct DigestHash {
  size_t operator()(const Digest& digest) const { return digest.low; }
};

class Explorer {
 public:
  explicit Explorer(const Scenario& scenario) { Explore(World(scenario)); }

  size_t num_states() const { return visited_.size(); }
  size_t num_rests() const { return num_rests_; }
  size_t num_ready() const { return num_ready_; }
  const std::string& failure() const { return failure_; }

 private:
  void Explore(const World& world) {
    if (!world.error().empty()) return Report(world.error());
    const Digest digest = world.digest();
    if (!visited_.insert(digest).second) {
      if (on_path_.contains(digest)) Report("progress: the pair runs in a circle");
      return;
    }
    on_path_.insert(digest);
    if (world.faults_left() > 0) {
      for (const Action& fault : world.Faults()) Take(world, fault);
    }
    const std::vector<Action> steps = world.Steps();
    for (const Action& step : steps) Take(world, step);
    if (steps.empty()) Rest(world);
    on_path_.erase(digest);
  }

  // Time passes only where nothing else can happen.
  void Rest(const World& world) {
    if (world.NextTick() < absl::InfiniteDuration()) return Take(world, {.step = Step::kTick});
    ++num_rests_;
    num_ready_ += world.num_ready();
    if (const std::string error = world.CheckRest(); !error.empty()) Report(error);
  }

  void Take(const World& world, const Action& action) {
    if (!failure_.empty()) return;
    path_.push_back(action);
    World next = world;
    next.Apply(action);
    Explore(next);
    path_.pop_back();
  }

  void Report(const std::string& text) {
    if (!failure_.empty()) return;
    failure_ = text + ", after:";
    for (const Action& action : path_) failure_ += "\n  " + NameOf(action);
  }

  std::unordered_set<Digest, DigestHash> visited_;
  std::unordered_set<Digest, DigestHash> on_path_;  // nothing, not even time, may lead back
  std::vector<Action> path_;
  size_t num_rests_ = 0;
  size_t num_ready_ = 0;
  std::string failure_;
};

// Fails the test with the way to a broken rule.
inline void ExpectHolds(const Scenario& scenario, size_t num_states_min) {
  const Explorer explorer(scenario);
  EXPECT_EQ(explorer.failure(), "");
  std::printf("%zu states, %zu rests, %zu requests ready\n", explorer.num_states(), explorer.num_rests(),
              explorer.num_ready());
  EXPECT_GE(explorer.num_states(), num_states_min);  // else the walk itself is broken
  EXPECT_GT(explorer.num_ready(), 0u);
}

}  // namespace tandem::kvtransfer
