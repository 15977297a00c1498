// A worker's ends of the routers' Live streams: hello, messages both ways, heartbeats and load, silence.
//
// The same for both kinds of workers. A stream counts from its hello on: the worker's own hello is the first message of
// the answer. A second stream of the same router instance takes the place of the first, which is ended with ABORTED,
// whatever its incarnation; an incarnation whose place another has taken is refused with FAILED_PRECONDITION
// (proto/instance_succession.h). One thread sends heartbeat and load on every stream and cuts those whose router has
// fallen silent (only routers that have sent a heartbeat before: others have not promised any; time in which this
// process itself was stalled is not counted). Events of one stream come in order: attached, message..., lost; attached
// events of all streams come in the order in which places were taken.
// Includes gRPC: for .cc files of services only. Tested by live_streams_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "grpcpp/grpcpp.h"
#include "proto/instance_succession.h"
#include "proto/worker.pb.h"
#include "worker_shell/live_options.h"

namespace tandem::worker_shell {

using LiveReactor = grpc::ServerBidiReactor<proto::RouterMessage, proto::WorkerMessage>;

class LiveStreams final {
 public:
  // `clock` outlives this. Events come on gRPC's threads and must neither block nor call back.
  LiveStreams(LiveOptions options, const base::Clock& clock, LiveEvents events);
  // After the server has begun to shut down: waits until no stream is open any more.
  ~LiveStreams();

  // For the service's Live method.
  LiveReactor* Open(grpc::CallbackServerContext* context);
  // Dropped where the stream is gone or replaced (its loss is told).
  void Send(uint64_t stream_id, proto::WorkerMessage message) ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells every router, also those that attach later, that this worker takes no more requests.
  void AnnounceDraining() ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends every stream behind what is queued on it: nobody misses the last words of a worker that has drained. Returns
  // when all have ended, at the latest after `limit`.
  void Farewell(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsAttached(uint64_t router_incarnation) const ABSL_LOCKS_EXCLUDED(mutex_);
  int num_streams() const ABSL_LOCKS_EXCLUDED(mutex_);
  // That wait for routers to read, of all streams together.
  size_t num_queued_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class Stream;
  struct Attached {
    std::shared_ptr<Stream> stream;
    proto::Identity router;
  };
  grpc::Status Attach(const std::shared_ptr<Stream>& stream, const proto::Identity& router) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReplaceStreamsOf(const proto::Identity& router) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Detach(const Stream& stream) ABSL_LOCKS_EXCLUDED(mutex_);
  void Beat() ABSL_LOCKS_EXCLUDED(mutex_);

  const LiveOptions options_;
  const base::Clock& clock_;
  const LiveEvents events_;
  mutable absl::Mutex mutex_;
  uint64_t next_stream_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int num_open_ ABSL_GUARDED_BY(mutex_) = 0;  // those without a hello included
  proto::InstanceSuccession succession_ ABSL_GUARDED_BY(mutex_) = proto::InstanceSuccession("router");
  // Incarnations whose refusal has been logged: they come back every few seconds.
  absl::flat_hash_set<uint64_t> refusals_logged_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Attached> by_id_ ABSL_GUARDED_BY(mutex_);      // replaced ones until they have ended
  absl::flat_hash_map<uint64_t, uint64_t> newest_of_ ABSL_GUARDED_BY(mutex_);  // router incarnation -> stream id
  bool is_draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread heart_;
};

}  // namespace tandem::worker_shell
