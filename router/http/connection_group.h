// What the connections of one server share: the bounds, what is taken of them, and who gives way.
//
// Nobody may keep others out by holding a place and doing nothing with it. So where connections_max or bodies_bytes_max
// is reached, of those who still wait for a whole request (idle, or in the middle of one) the one gives way that has
// waited longest, if that is longer than give_way_after; only where there is none, the newcomer is refused. A request
// that is being answered never gives way. Internal to router/http; tested by http_crowd_test.cc.
#pragma once

#include <list>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include "router/http/http_limits.h"

namespace tandem::router {

class Connection;
class HttpHandler;

struct ConnectionGroup {
  HttpLimits limits;
  HttpHandler* handler = nullptr;
  bool is_draining = false;
  size_t num_body_bytes = 0;  // of all BodyShares
  std::unordered_set<Connection*> connections;
  std::list<Connection*> in_line;      // wait for a whole request, the longest first
  std::vector<Connection*> with_news;  // a turn of the loop is due that has them write
};

// What one body takes of HttpLimits::bodies_bytes_max: the bytes that have come, not those that are announced.
class BodyShare final {
 public:
  explicit BodyShare(std::shared_ptr<ConnectionGroup> group) : group_(std::move(group)) {}
  ~BodyShare() { Release(); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  bool HasRoomFor(size_t num_bytes) const {
    return num_bytes <= num_bytes_ ||
           group_->num_body_bytes + (num_bytes - num_bytes_) <= group_->limits.bodies_bytes_max;
  }
  // False where there is no room for num_bytes in all; the share is then unchanged.
  bool GrowTo(size_t num_bytes) {
    if (!HasRoomFor(num_bytes)) return false;
    if (num_bytes <= num_bytes_) return true;
    group_->num_body_bytes += num_bytes - num_bytes_;
    num_bytes_ = num_bytes;
    return true;
  }
  void Release() { group_->num_body_bytes -= std::exchange(num_bytes_, 0); }
  size_t num_bytes() const { return num_bytes_; }

 private:
  const std::shared_ptr<ConnectionGroup> group_;
  size_t num_bytes_ = 0;
};

// Has one connection of the line give way. False where none has waited for long enough.
enum class GivesWay { kPlace, kBodyBytes };
bool OldestInLineGivesWay(const ConnectionGroup& group, GivesWay what, const Connection* for_whom);

}  // namespace tandem::router
