// SPDX-License-Identifier: Apache-2.0
#include "transport/local/open.hpp"

#include <sys/epoll.h>
#include <sys/random.h>

#include <cerrno>

#include "base/errors.hpp"
#include "transport/local/link.hpp"
#include "transport/local/region.hpp"

namespace gigabar::transport {
namespace local {

Result<DeviceCopier*> Core::copier_of(int device) {
  auto found = copiers.find(device);
  if (found == copiers.end()) {
    CopierOptions options;
    options.most_kernel_bytes = most_kernel_bytes;
    found = copiers.emplace(device, DeviceCopier::open(device, std::move(options))).first;
  }
  if (!found->second) return found->second.error();
  return found->second->get();
}

std::shared_ptr<ProcessMemory> Core::memory_of(std::int64_t process, std::uint64_t nonce_address, const Nonce& peers_nonce) {
  std::weak_ptr<ProcessMemory>& known = processes[process];
  if (auto memory = known.lock()) return memory;
  auto memory = ProcessMemory::open(static_cast<pid_t>(process), nonce_address, peers_nonce);
  if (memory->reason().empty()) known = memory;  // what was refused may be allowed later, and a key can lie
  return memory;
}

namespace {

class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(std::shared_ptr<Core> core)
      : Transport(TransportKind::local, {"shared memory"}), core_(std::move(core)) {}

  std::string address() const override { return std::string(kAddress); }
  Result<std::unique_ptr<Region>> register_memory(const MemoryRange& range) override { return LocalRegion::make(core_, range); }
  Result<std::unique_ptr<RemoteRegion>> open_region(const Peer& peer, Parcel key) override {
    return PeerRegion::open(core_, peer, std::move(key));
  }

  std::string why_no_words() const override { return {}; }
  Availability can_reach(const Peer& peer) const override;
  Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) override;
  Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) override;

  bool poll(Sink& sink) override;
  bool arm() override;
  int wake_descriptor() const noexcept override { return core_->wakes.get(); }

 private:
  void disarm();

  const std::shared_ptr<Core> core_;
  bool is_armed_ = false;
};

Error malformed_offer(const char* cause) {
  return make_error(Status::bad_file, "accept", "offer of a local link", cause, "run the same version at every rank");
}

Availability LocalTransport::can_reach(const Peer& peer) const {
  if (!peer.is_same_host)
    return {AvailabilityCode::not_supported, text("rank ", peer.rank, " is on another host, or of another user"), ""};
  if (peer.address != kAddress) {
    return {AvailabilityCode::not_supported, text("rank ", peer.rank, " speaks another version of local links"),
            "run the same version at every rank"};
  }
  return {AvailabilityCode::ok, "shared memory", ""};
}

Result<std::unique_ptr<Link>> LocalTransport::offer(const Peer& peer, std::size_t, Parcel& offer) {
  if (const Availability can = can_reach(peer); !can.is_ok()) return make_error("connect", text("rank ", peer.rank), can);
  Descriptor file;
  auto memory = LinkMemory::make(file);
  if (!memory) return std::move(memory).error();
  Descriptor own;
  Descriptor peers;
  if (Result<void> made = make_wake_pair(own, peers); !made) return std::move(made).error();
  offer = {std::string(kOffer), {}};
  offer.descriptors.push_back(std::move(file));
  offer.descriptors.push_back(std::move(peers));
  return std::unique_ptr<Link>(std::make_unique<LocalLink>(core_, 0, std::move(*memory), std::move(own)));
}

Result<std::unique_ptr<Link>> LocalTransport::accept(const Peer& peer, Parcel offer, Parcel& answer) {
  if (const Availability can = can_reach(peer); !can.is_ok()) return make_error("connect", text("rank ", peer.rank), can);
  if (offer.bytes != kOffer) return malformed_offer("is of another kind or version");
  if (offer.descriptors.size() != 2) return malformed_offer("comes with a wrong number of descriptors");
  auto memory = LinkMemory::open(offer.descriptors[0]);
  if (!memory) return std::move(memory).error();
  if (Result<void> checked = check_wake_socket(offer.descriptors[1]); !checked) return std::move(checked).error();
  answer = {std::string(kAnswer), {}};
  return std::unique_ptr<Link>(std::make_unique<LocalLink>(core_, 1, std::move(*memory), std::move(offer.descriptors[1])));
}

void LocalTransport::disarm() {
  is_armed_ = false;
  for (LocalLink* const link : core_->links) link->disarm();
  epoll_event events[32];
  const int count = ::epoll_wait(core_->wakes.get(), events, 32, 0);
  for (int index = 0; index < count; ++index) static_cast<LocalLink*>(events[index].data.ptr)->take_wake();
}

bool LocalTransport::poll(Sink& sink) {
  if (is_armed_) disarm();
  bool has_any = false;
  // By index: callbacks may add links.
  for (std::size_t index = 0; index < core_->links.size(); ++index) {  // NOLINT(modernize-loop-convert)
    has_any |= core_->links[index]->poll(sink);
  }
  for (auto& [device, copier] : core_->copiers) {
    if (copier) (*copier)->check();
  }
  return has_any;
}

bool LocalTransport::arm() {
  is_armed_ = true;
  for (LocalLink* const link : core_->links) {
    if (link->arm()) continue;
    disarm();
    return false;
  }
  return true;
}

}  // namespace
}  // namespace local

Result<std::unique_ptr<Transport>> open_local(const TransportOptions& options) {
  auto core = std::make_shared<local::Core>();
  core->near_device = options.near_device;
  core->most_kernel_bytes = options.most_kernel_bytes;
  core->wakes = Descriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!core->wakes.is_open()) {
    const int code = errno;
    return make_error(status_of_errno(code), "open", "local transport", errno_code(code).name,
                      "raise the descriptor limit (ulimit -n)", errno_code(code));
  }
  if (::getrandom(core->nonce.data(), core->nonce.size(), 0) != static_cast<ssize_t>(core->nonce.size())) {
    const int code = errno;
    return make_error(Status::device_error, "open", "local transport", "the kernel gives no random bytes", "", errno_code(code));
  }
  return std::unique_ptr<Transport>(std::make_unique<local::LocalTransport>(std::move(core)));
}

}  // namespace gigabar::transport
