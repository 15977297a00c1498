#include "decode_worker/peer_links.h"

#include <set>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/log.h"

namespace tandem::decode {

PeerLinks::PeerLinks(PeerLinksOptions options, const base::Clock& clock, PeerLinksEvents events)
    : options_(std::move(options)), clock_(clock), events_(std::move(events)), thread_([this] { Run(); }) {}

PeerLinks::~PeerLinks() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
  std::map<std::string, std::unique_ptr<kvtransfer::PeerLink>> links;
  {
    absl::MutexLock lock(&links_mutex_);
    links.swap(links_);
  }
}

void PeerLinks::Run() {
  while (true) {
    Order order;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &PeerLinks::HasOrders));
      if (is_stopping_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    order();
  }
}

void PeerLinks::LinkWith(const std::vector<std::string>& addresses) {
  const std::set<std::string> wanted(addresses.begin(), addresses.end());
  absl::MutexLock lock(&mutex_);
  orders_.push_back([this, wanted] {
    std::vector<std::string> gone;
    std::set<std::string> added = wanted;
    {
      absl::MutexLock links_lock(&links_mutex_);
      for (const auto& [address, link] : links_) {
        if (wanted.contains(address)) {
          added.erase(address);
        } else {
          gone.push_back(address);
        }
      }
    }
    for (const std::string& address : gone) Close(address);
    for (const std::string& address : added) Open(address);
  });
}

void PeerLinks::Open(const std::string& address) {
  LOG_INFO("linking with prefill", {"peer", address});
  auto link = std::make_unique<kvtransfer::PeerLink>(
      kvtransfer::PeerLinkOptions{
          .security = options_.security, .address = address, .hello = options_.hello, .liveness = options_.liveness},
      clock_, events_.vitals, [this, address](kvtransfer::PeerEvent event) { OnEvent(address, std::move(event)); });
  absl::MutexLock lock(&links_mutex_);
  links_[address] = std::move(link);
}

void PeerLinks::Close(const std::string& address) {
  LOG_INFO("unlinking from prefill", {"peer", address});
  std::unique_ptr<kvtransfer::PeerLink> link;
  {
    absl::MutexLock lock(&links_mutex_);
    link = std::move(links_[address]);
    links_.erase(address);
  }
  link.reset();  // no event of it comes after this
  absl::MutexLock lock(&mutex_);
  failures_logged_.erase(address);
  if (sessions_.erase(address) > 0) {
    events_.down(address, absl::UnavailableError("no router names this prefill worker any more"));
  }
}

void PeerLinks::OnEvent(const std::string& address, kvtransfer::PeerEvent event) {
  if (auto* message = std::get_if<kvtransfer::PeerMessage>(&event)) {
    events_.message(address, std::move(message->message));
    return;
  }
  absl::MutexLock lock(&mutex_);
  if (auto* up = std::get_if<kvtransfer::PeerUp>(&event)) {
    sessions_[address] = up->session;
    failures_logged_.erase(address);
    orders_.push_back([this, address, up = std::move(*up)] { Wire(address, up); });
  } else {
    const absl::Status& status = std::get<kvtransfer::PeerDown>(event).status;
    const auto [logged, is_first] = failures_logged_.try_emplace(address, status.code());
    if (is_first || logged->second != status.code()) {
      LOG_WARNING("prefill is not usable", {"peer", address}, {"status", status});
    }
    logged->second = status.code();
    sessions_.erase(address);
    events_.down(address, status);
  }
}

void PeerLinks::Wire(const std::string& address, const kvtransfer::PeerUp& up) {
  auto wired = std::make_shared<WiredPeer>(WirePeer(up.reply, up.session, options_.wiring, clock_));
  if (wired->source.lanes.empty()) {  // for the moment, or for good: greeted and tried again after a while
    return Reset(
        {.peer = address, .session = up.session, .status = absl::FailedPreconditionError(wired->source.detail)});
  }
  if (wired->refusals.empty()) {
    LOG_INFO("prefill is wired", {"peer", address}, {"lanes", wired->source.detail});
  } else {
    LOG_WARNING("prefill is wired, lanes were refused", {"peer", address}, {"lanes", wired->source.detail});
  }
  absl::MutexLock lock(&mutex_);
  const auto session = sessions_.find(address);
  if (session == sessions_.end() || session->second != up.session) {
    for (auto& rank : wired->lanes) {
      for (auto& lane : rank) lane->Close();
    }
    return;
  }
  events_.up(address, std::move(wired));
}

void PeerLinks::Send(const kvtransfer::SendMessage& message) {
  absl::MutexLock lock(&links_mutex_);
  const auto link = links_.find(message.peer);
  if (link != links_.end()) link->second->Send(message.session, message.message);
}

void PeerLinks::Reset(const kvtransfer::ResetPeer& reset) {
  absl::MutexLock lock(&links_mutex_);
  const auto link = links_.find(reset.peer);
  if (link != links_.end()) link->second->Reset(reset.session, reset.status);
}

}  // namespace tandem::decode
