// What is known of one pool's EndpointSlices, and what to ask the API server next: answers in, workers out.
//
// Pure of sockets and clocks. Level-triggered: every list_interval the whole list is asked for, whatever the watch
// said, so that nothing is lost for longer, be it an event that never came or a watch that is silent; a watch between
// two lists only makes news quick. It goes on from the last version that it has heard of, bookmarks included, and a
// list replaces it where the server has forgotten that version, where something was not understood, and after a watch
// that could not be begun: so an API server that is away fails lists, and is told of once. Tested by
// endpoint_watch_test.cc: scripts, and a property over random faults.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "router/discovery/endpoint_slice.h"
#include "router/discovery/worker_lists.h"
#include "router/worker_channel.h"

namespace tandem::router {

class EndpointWatch final {
 public:
  static constexpr absl::Duration kBackoffMin = absl::Milliseconds(200);
  static constexpr absl::Duration kBackoffMax = absl::Seconds(10);
  static constexpr absl::Duration kRetryAfterMax = absl::Minutes(1);  // that a server is believed
  static constexpr size_t kEndpointsMax = 16384;

  struct Options {
    WorkerRole role = WorkerRole::kPrefill;
    std::string selector;  // as errors call what is looked for
    std::string port_name;
    absl::Duration list_interval = absl::Seconds(30);
    uint64_t seed = 1;  // of what spreads the routers' asking in time
  };
  // The next thing to ask. The watch ends after `length` at the latest: then the list is due.
  struct Ask {
    enum class Kind { kList, kWatch };
    Kind kind = Kind::kList;
    absl::Duration wait = absl::ZeroDuration();  // before asking
    std::string resource_version;                // of kWatch: from where it goes on
    absl::Duration length = absl::ZeroDuration();
  };

  explicit EndpointWatch(const Options& options);

  // Times never go back. Ask, then say what came of it, then ask again.
  Ask Next(absl::Duration now);
  // retry_after: the server's, zero where it said nothing.
  void OnListed(absl::Duration now, absl::StatusOr<EndpointSliceList> list,
                absl::Duration retry_after = absl::ZeroDuration());
  // OK while the watch may go on; else it is to be ended, which OnWatchEnded() is then told with this status.
  absl::Status OnEvent(const absl::StatusOr<EndpointSliceEvent>& event);
  // is_begun: the server had accepted it. OK, UNAVAILABLE and DEADLINE_EXCEEDED for one that was merely cut: it
  // goes on where it was.
  void OnWatchEnded(absl::Duration now, bool is_begun, const absl::Status& status,
                    absl::Duration retry_after = absl::ZeroDuration());

  // The pool's ready endpoints; one address for each pod, of IPv4 where it has both.
  std::set<std::string> ready() const;
  // As a source of workers says it: a pool without a ready endpoint is an error, not an empty list, since a selector
  // that matches nothing and nodes that the server has lost look alike, and whether a known worker lives is seen by its
  // link. So is a list that failed.
  absl::StatusOr<WorkerLists> workers() const;
  // Why workers are listed only, and not watched, though the lists are good; OK while that is not so.
  const absl::Status& watch_fault() const { return watch_fault_; }

 private:
  absl::Duration Backoff(int num_failures);
  void Put(EndpointSlice slice);
  void WatchIsGood();
  size_t num_endpoints() const;

  const Options options_;
  std::mt19937_64 random_;
  std::map<std::string, EndpointSlice> slices_;  // by name
  std::string resource_version_;
  absl::Status list_status_ = absl::UnavailableError("not listed yet");
  absl::Status watch_fault_;
  bool needs_list_ = true;
  absl::Duration list_at_ = absl::ZeroDuration();
  absl::Duration retry_at_ = absl::ZeroDuration();  // the server asked for patience
  bool heard_event_ = false;                        // in the watch under way
  int num_failed_lists_ = 0;                        // in a row
  int num_failed_watches_ = 0;                      // in a row; one that brought an event has not failed
  int num_refused_watches_ = 0;                     // of these, those that a list had to follow
};

}  // namespace tandem::router
