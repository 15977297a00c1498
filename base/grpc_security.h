// PeerSecurity spoken in gRPC: channels, listening ports, and the token of a call.
//
// A PeerSecurity outlives every channel and server made with it. Includes gRPC: for .cc files alone. Tested by
// grpc_security_test.cc.
#pragma once

#include <memory>
#include <string>

#include "base/peer_security.h"
#include "grpcpp/grpcpp.h"

namespace tandem::base {

// With the certificates of this moment: who connects anew makes a new channel.
std::shared_ptr<grpc::Channel> ConnectToPeer(const std::string& address, grpc::ChannelArguments arguments,
                                             PeerSecurity& security);
// To be called before the call is started.
void ShowToken(grpc::ClientContext& context, PeerSecurity& security);

// Each connection is greeted with the certificates of its moment.
std::shared_ptr<grpc::ServerCredentials> PeerServerCredentials(PeerSecurity& security);
// At the beginning of every method: what to finish the call with where it is not OK. Counts and logs refusals.
grpc::Status CheckToken(const grpc::CallbackServerContext& context, PeerSecurity& security);

// What a method returns that refuses its call.
template <typename In, typename Out>
class RefusedCall final : public grpc::ServerBidiReactor<In, Out> {
 public:
  static RefusedCall* With(const grpc::Status& status) { return new RefusedCall(status); }

 private:
  explicit RefusedCall(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace tandem::base
