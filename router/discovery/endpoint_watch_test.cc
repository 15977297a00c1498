// What a pool's watch asks for next and what it makes of the answers, under a clock that the test owns; at the end a
// server whose events are lost, doubled, disordered, cut and forgotten at random.
#include "router/discovery/endpoint_watch.h"

#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

using Kind = EndpointWatch::Ask::Kind;
using Addresses = std::set<std::string>;

EndpointSlice SliceOf(const std::string& name, const Addresses& ready) {
  EndpointSlice slice;
  slice.name = name;
  for (const std::string& address : ready) slice.ready.push_back({address, "", false});
  return slice;
}
EndpointSliceEvent Put(const EndpointSlice& slice, const std::string& version) {
  return {EndpointSliceEvent::Kind::kPut, slice, version, absl::OkStatus()};
}
EndpointSliceEvent Deleted(const std::string& name, const std::string& version) {
  return {EndpointSliceEvent::Kind::kDeleted, SliceOf(name, {}), version, absl::OkStatus()};
}
EndpointSliceEvent Expired() {
  return {EndpointSliceEvent::Kind::kError, {}, "", absl::OutOfRangeError("HTTP 410: too old")};
}

class EndpointWatchTest : public testing::Test {
 protected:
  static EndpointWatch::Options Options() {
    EndpointWatch::Options options;
    options.role = WorkerRole::kDecode;
    options.selector = "app=decode";
    options.port_name = "rpc";
    return options;
  }
  // What it asks for when it is time to.
  EndpointWatch::Ask AskNext() {
    const EndpointWatch::Ask ask = watch_.Next(now_);
    now_ += ask.wait;
    return ask;
  }
  void List(const std::vector<EndpointSlice>& slices, const std::string& version) {
    ASSERT_EQ(AskNext().kind, Kind::kList);
    watch_.OnListed(now_, EndpointSliceList{version, slices});
  }

  EndpointWatch watch_{Options()};
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(EndpointWatchTest, ListsThenWatchesFromTheListsVersionUntilTheNextListIsDue) {
  EXPECT_FALSE(watch_.workers().ok());
  List({SliceOf("s0", {"d0:1"}), SliceOf("s1", {"d1:1"})}, "7");
  EXPECT_EQ(*watch_.workers(), (WorkerLists{{}, {"d0:1", "d1:1"}}));
  const EndpointWatch::Ask ask = AskNext();
  EXPECT_EQ(ask.kind, Kind::kWatch);
  EXPECT_EQ(ask.wait, absl::ZeroDuration());
  EXPECT_EQ(ask.resource_version, "7");
  EXPECT_GE(ask.length, absl::Seconds(26));
  EXPECT_LE(ask.length, absl::Seconds(30));
  now_ += ask.length;
  watch_.OnWatchEnded(now_, true, absl::OkStatus());
  const EndpointWatch::Ask next = AskNext();
  EXPECT_EQ(next.kind, Kind::kList);
  EXPECT_EQ(next.wait, absl::ZeroDuration());
}

TEST_F(EndpointWatchTest, EventsChangeTheSetAndAWatchThatIsCutGoesOnFromTheLastOfThem) {
  List({SliceOf("s0", {"d0:1"})}, "7");
  AskNext();
  EXPECT_TRUE(watch_.OnEvent(Put(SliceOf("s1", {"d1:1"}), "8")).ok());
  EXPECT_TRUE(watch_.OnEvent(Put(SliceOf("s1", {"d1:1", "d2:1"}), "9")).ok());
  EXPECT_EQ(watch_.ready(), (Addresses{"d0:1", "d1:1", "d2:1"}));
  EXPECT_TRUE(watch_.OnEvent(Deleted("s0", "10")).ok());
  EXPECT_EQ(watch_.ready(), (Addresses{"d1:1", "d2:1"}));
  EXPECT_TRUE(watch_.OnEvent(EndpointSliceEvent{EndpointSliceEvent::Kind::kBookmark, {}, "50", {}}).ok());
  watch_.OnWatchEnded(now_, true, absl::UnavailableError("the answer breaks off"));
  const EndpointWatch::Ask ask = AskNext();
  EXPECT_EQ(ask.kind, Kind::kWatch);
  EXPECT_EQ(ask.resource_version, "50");
  EXPECT_EQ(ask.wait, absl::ZeroDuration()) << "it had brought something";
}

TEST_F(EndpointWatchTest, AVersionThatIsGoneIsListedAgainAtOnceAndThenWithPatience) {
  List({SliceOf("s0", {"d0:1"})}, "7");
  AskNext();
  const absl::Status end = watch_.OnEvent(Expired());
  EXPECT_EQ(end.code(), absl::StatusCode::kOutOfRange);
  watch_.OnWatchEnded(now_, true, end);
  const EndpointWatch::Ask ask = AskNext();
  EXPECT_EQ(ask.kind, Kind::kList);
  EXPECT_EQ(ask.wait, absl::ZeroDuration());
  EXPECT_TRUE(watch_.watch_fault().ok()) << "once is usual";
  // A server that says so each time: lists take the watch's place, ever slower, and one fault is told of.
  absl::Duration last_wait = absl::ZeroDuration();
  for (int i = 0; i < 12; ++i) {
    watch_.OnListed(now_, EndpointSliceList{"8", {SliceOf("s0", {"d0:1"})}});
    EXPECT_EQ(AskNext().kind, Kind::kWatch);
    watch_.OnWatchEnded(now_, false, absl::OutOfRangeError("HTTP 410: too old"));
    EXPECT_FALSE(watch_.watch_fault().ok());
    const EndpointWatch::Ask again = AskNext();
    EXPECT_EQ(again.kind, Kind::kList);
    last_wait = again.wait;
  }
  EXPECT_GE(last_wait, EndpointWatch::kBackoffMax / 2);
  EXPECT_LE(last_wait, EndpointWatch::kBackoffMax);
  watch_.OnListed(now_, EndpointSliceList{"8", {SliceOf("s0", {"d0:1"})}});
  AskNext();
  EXPECT_TRUE(watch_.OnEvent(Put(SliceOf("s0", {"d1:1"}), "9")).ok());
  EXPECT_TRUE(watch_.watch_fault().ok());
}

TEST_F(EndpointWatchTest, AServerThatIsAwayFailsListsAndTheSetStays) {
  List({SliceOf("s0", {"d0:1"})}, "7");
  AskNext();
  watch_.OnWatchEnded(now_, true, absl::UnavailableError("the answer breaks off"));
  EXPECT_EQ(AskNext().kind, Kind::kWatch);
  watch_.OnWatchEnded(now_, false, absl::UnavailableError("cannot connect"));
  absl::Duration waited = absl::ZeroDuration();
  for (int i = 0; i < 20; ++i) {
    const EndpointWatch::Ask ask = AskNext();
    EXPECT_EQ(ask.kind, Kind::kList) << "so that one source of errors tells of it";
    EXPECT_LE(ask.wait, EndpointWatch::kBackoffMax);
    if (i > 8) {
      EXPECT_GE(ask.wait, EndpointWatch::kBackoffMax / 2);
    }
    waited += ask.wait;
    watch_.OnListed(now_, absl::UnavailableError("cannot connect"));
    EXPECT_EQ(watch_.workers().status(), absl::UnavailableError("cannot connect"));
    EXPECT_EQ(watch_.ready(), (Addresses{"d0:1"}));
  }
  EXPECT_TRUE(watch_.watch_fault().ok());
  List({SliceOf("s0", {"d0:1"})}, "9");
  EXPECT_TRUE(watch_.workers().ok());
}

TEST_F(EndpointWatchTest, AServerThatAsksForPatienceGetsIt) {
  ASSERT_EQ(AskNext().kind, Kind::kList);
  watch_.OnListed(now_, absl::UnavailableError("HTTP 429"), absl::Seconds(25));
  EXPECT_EQ(AskNext().wait, absl::Seconds(25));
  watch_.OnListed(now_, absl::UnavailableError("HTTP 429"), absl::Hours(25));
  EXPECT_EQ(AskNext().wait, EndpointWatch::kRetryAfterMax);
}

TEST_F(EndpointWatchTest, AnEventThatIsNotUnderstoodEndsTheWatchInAList) {
  List({SliceOf("s0", {"d0:1"})}, "7");
  AskNext();
  const absl::Status end = watch_.OnEvent(absl::InvalidArgumentError("not JSON"));
  EXPECT_FALSE(end.ok());
  watch_.OnWatchEnded(now_, true, end);
  EXPECT_EQ(AskNext().kind, Kind::kList);
  EXPECT_EQ(watch_.ready(), (Addresses{"d0:1"}));
}

TEST_F(EndpointWatchTest, AnEmptyPoolIsAnErrorThatSaysWhatWasLookedFor) {
  List({}, "1");
  EXPECT_EQ(watch_.workers().status().message(), "no EndpointSlice has the labels app=decode");
  EXPECT_EQ(AskNext().kind, Kind::kWatch) << "the list itself is good";
  EXPECT_TRUE(watch_.OnEvent(Put(SliceOf("s0", {}), "2")).ok());
  EXPECT_EQ(watch_.workers().status().message(), "no endpoint is ready of those with the labels app=decode");
  EndpointSlice other = SliceOf("s1", {});
  other.lacks_port = true;
  EXPECT_TRUE(watch_.OnEvent(Put(other, "3")).ok());
  EXPECT_EQ(watch_.workers().status().message(), "EndpointSlice s1 has no TCP port named \"rpc\"");
  EXPECT_TRUE(watch_.OnEvent(Put(SliceOf("s0", {"d0:1"}), "4")).ok());
  EXPECT_EQ(*watch_.workers(), (WorkerLists{{}, {"d0:1"}})) << "those that can be used are";
}

TEST_F(EndpointWatchTest, APodOfTwoFamiliesIsOneWorkerAndSoIsOneInTwoSlices) {
  EndpointSlice ipv4 = SliceOf("s4", {});
  ipv4.ready = {{"10.0.0.1:1", "pod-a", false}, {"10.0.0.2:1", "pod-b", false}};
  EndpointSlice ipv6 = SliceOf("s6", {});
  ipv6.ready = {{"[fd00::1]:1", "pod-a", true}, {"[fd00::3]:1", "pod-c", true}, {"[fd00::4]:1", "", true}};
  EndpointSlice more = SliceOf("s5", {});
  more.ready = {{"10.0.0.2:1", "pod-b", false}};
  List({ipv6, ipv4, more}, "7");
  EXPECT_EQ(watch_.ready(), (Addresses{"10.0.0.1:1", "10.0.0.2:1", "[fd00::3]:1", "[fd00::4]:1"}));
}

TEST_F(EndpointWatchTest, MoreEndpointsThanABoundAreAnError) {
  const auto many = [](const std::string& name, size_t count) {
    EndpointSlice slice = SliceOf(name, {});
    for (size_t i = 0; i < count; ++i) slice.ready.push_back({absl::StrCat(name, i, ":1"), "", false});
    return slice;
  };
  List({many("a", EndpointWatch::kEndpointsMax)}, "7");
  EXPECT_TRUE(watch_.workers().ok());
  AskNext();
  const absl::Status end = watch_.OnEvent(Put(many("b", 1), "8"));
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted);
  watch_.OnWatchEnded(now_, true, end);
  EXPECT_EQ(AskNext().kind, Kind::kList);
  watch_.OnListed(now_, EndpointSliceList{"8", {many("a", EndpointWatch::kEndpointsMax + 1)}});
  EXPECT_EQ(watch_.workers().status().code(), absl::StatusCode::kResourceExhausted);
}

// A server whose objects change all the time and whose answers suffer every fault. Whatever these are, after the next
// list that succeeds the set is the truth, and that list comes within list_interval and the longest wait.
TEST(EndpointWatchPropertyTest, AfterAListTheSetIsTheTruthWhateverWasLost) {
  struct Change {
    int version;
    EndpointSliceEvent event;
  };
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t bound) { return random() % bound; };
    EndpointWatch::Options options;
    options.selector = "app=prefill";
    options.seed = seed;
    EndpointWatch watch(options);
    std::map<std::string, Addresses> truth;
    std::deque<Change> history;
    int version = 100, compacted = 100;
    absl::Duration now = absl::Seconds(draw(1000));
    absl::Duration listed_at = now;
    const auto change_something = [&] {
      const std::string name = absl::StrCat("s", draw(5));
      ++version;
      if (draw(4) == 0) {
        if (truth.erase(name) > 0) history.push_back({version, Deleted(name, absl::StrCat(version))});
        return;
      }
      Addresses addresses;
      for (uint64_t i = 0; i < draw(4); ++i) addresses.insert(absl::StrCat("10.0.0.", draw(9), ":1"));
      truth[name] = addresses;
      history.push_back({version, Put(SliceOf(name, addresses), absl::StrCat(version))});
    };
    const auto expected = [&] {
      Addresses all;
      for (const auto& [name, addresses] : truth) all.insert(addresses.begin(), addresses.end());
      return all;
    };
    int num_lists = 0;
    const uint64_t fault_odds = 2 + draw(30);
    for (int step = 0; step < 400; ++step) {
      for (uint64_t i = 0; i < draw(3); ++i) change_something();
      if (draw(10) == 0) {  // compaction
        compacted = version - static_cast<int>(draw(5));
        while (!history.empty() && history.front().version <= compacted) history.pop_front();
      }
      const EndpointWatch::Ask ask = watch.Next(now);
      now += ask.wait;
      if (ask.kind == Kind::kList) {
        if (draw(fault_odds) == 0) {
          watch.OnListed(now, absl::UnavailableError("fault"), absl::Seconds(draw(3)));
          continue;
        }
        std::vector<EndpointSlice> slices;
        for (const auto& [name, addresses] : truth) slices.push_back(SliceOf(name, addresses));
        watch.OnListed(now, EndpointSliceList{absl::StrCat(version), slices});
        ASSERT_EQ(watch.ready(), expected()) << "seed " << seed;
        ++num_lists;
        listed_at = now;
        continue;
      }
      // Nothing that was lost is missed for longer: the longest watch, the longest wait, the longest patience.
      ASSERT_LE(now + ask.length - listed_at, options.list_interval + EndpointWatch::kBackoffMax + absl::Seconds(4));
      int from = 0;
      ASSERT_TRUE(absl::SimpleAtoi(ask.resource_version, &from));
      if (draw(fault_odds) == 0) {
        watch.OnWatchEnded(now, false, absl::UnavailableError("fault"));
        continue;
      }
      absl::Status end = from < compacted ? watch.OnEvent(Expired()) : absl::OkStatus();
      std::vector<EndpointSliceEvent> events;
      for (const Change& change : history) {
        if (change.version > from) events.push_back(change.event);
      }
      for (size_t i = 0; i < events.size() && end.ok(); ++i) {
        if (draw(fault_odds) == 0) continue;                                           // lost
        if (draw(fault_odds) == 0) std::swap(events[i], events[draw(events.size())]);  // disordered
        if (draw(fault_odds) == 0) end = watch.OnEvent(events[draw(i + 1)]);           // doubled
        if (end.ok()) end = watch.OnEvent(events[i]);
        if (draw(fault_odds) == 0) end = absl::UnavailableError("cut");
        if (draw(3 * fault_odds) == 0) end = watch.OnEvent(absl::InvalidArgumentError("garbage"));
      }
      now += end.ok() && draw(2) == 0 ? ask.length : absl::Milliseconds(draw(500));
      watch.OnWatchEnded(now, true, end);
    }
    EXPECT_GT(num_lists, 3) << "seed " << seed;
  }
}

// The same without faults: the watch alone keeps the set true between two lists.
TEST(EndpointWatchPropertyTest, WithoutFaultsEveryEventIsTheTruth) {
  std::mt19937_64 random(11);
  EndpointWatch watch(EndpointWatch::Options{});
  absl::Duration now = absl::Seconds(5);
  std::map<std::string, Addresses> truth;
  watch.OnListed(now, EndpointSliceList{"1", {}});
  ASSERT_EQ(watch.Next(now).kind, Kind::kWatch);
  for (int i = 2; i < 2000; ++i) {
    const std::string name = absl::StrCat("s", random() % 7);
    const std::string version = absl::StrCat(i);
    if (random() % 3 == 0) {
      truth.erase(name);
      ASSERT_TRUE(watch.OnEvent(Deleted(name, version)).ok());
    } else {
      Addresses addresses;
      for (uint64_t n = 0; n < random() % 4; ++n) addresses.insert(absl::StrCat("10.0.0.", random() % 9, ":1"));
      truth[name] = addresses;
      ASSERT_TRUE(watch.OnEvent(Put(SliceOf(name, addresses), version)).ok());
    }
    Addresses all;
    for (const auto& [key, addresses] : truth) all.insert(addresses.begin(), addresses.end());
    ASSERT_EQ(watch.ready(), all);
  }
}

}  // namespace
}  // namespace tandem::router
