// The threads that do what would hold up a shard's loop: large bodies, and the forms of answers. Shared by the shards.
//
// Each lane has one thread, and serves in turn. Huge bodies, which take seconds, have a lane of their own, so that
// whoever sends them waits for others of their kind alone. Tested by endpoints_integration_test.cc.
#pragma once

#include <cstddef>
#include <memory>

namespace boost::asio {
class thread_pool;
}

namespace tandem::router {

class PreparationThreads final {
 public:
  static constexpr size_t kHugeBodyBytes = size_t{1} << 20;

  PreparationThreads();
  ~PreparationThreads();  // what has begun is finished, the rest is dropped
  PreparationThreads(const PreparationThreads&) = delete;
  PreparationThreads& operator=(const PreparationThreads&) = delete;

  // The lane of a body of that size.
  boost::asio::thread_pool& For(size_t num_body_bytes) { return num_body_bytes > kHugeBodyBytes ? *huge_ : *others_; }

 private:
  const std::unique_ptr<boost::asio::thread_pool> others_;
  const std::unique_ptr<boost::asio::thread_pool> huge_;
};

}  // namespace tandem::router
