// SPDX-License-Identifier: Apache-2.0
// The verbs transport: its rails, and the links on them.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/transport.hpp"
#include "transport/verbs/device.hpp"
#include "transport/verbs/gpu_order.hpp"
#include "transport/verbs/link.hpp"

namespace gigabar::transport::rdma {

class VerbsTransport final : public Transport {
 public:
  static Result<std::unique_ptr<Transport>> open(const TransportOptions& options);
  ~VerbsTransport() override;

  std::string address() const override;
  Result<std::unique_ptr<Region>> register_memory(const MemoryRange& range) override;
  Result<std::unique_ptr<RemoteRegion>> open_region(const Peer& peer, Parcel key) override;
  std::string why_no_words() const override;
  Result<void> flush_gpu_writes() override { return order_->flush(); }
  Availability can_reach(const Peer& peer) const override;
  Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) override;
  Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) override;
  bool poll(Sink& sink) override;
  bool arm() override;
  int wake_descriptor() const noexcept override { return wake_.get(); }
  bool needs_processor() const noexcept override { return std::ranges::any_of(rails_.devices, &Device::is_software); }

  // For links.
  const Rail& rail(std::size_t index) const noexcept { return rails_.rails[index]; }
  rdma_event_channel* channel() const noexcept { return channel_.get(); }
  const TransportOptions& options() const noexcept { return options_; }
  void add(VerbsLink* link) { links_.push_back(link); }
  void remove(VerbsLink* link) noexcept { std::erase(links_, link); }

 private:
  explicit VerbsTransport(const TransportOptions& options) : Transport(TransportKind::verbs), options_(options) {}
  std::vector<std::size_t> rails_towards(std::span<const RailAddress> theirs) const;
  Result<std::unique_ptr<VerbsLink>> make_link(std::size_t rail);
  Result<void> open_wake_descriptor();
  Result<void> watch(int descriptor);
  bool look_around(Sink& sink);
  bool take_events(Sink& sink);
  bool take_device_events();
  void on_device_event(Device& device, const ibv_async_event& event);
  void leave(Device& device, const char* why);
  void handle(const CmEvent& event, Sink& sink);
  void on_request(const CmEvent& event);
  void refuse(Id id, const char* why);
  void take_wakes();

  TransportOptions options_;
  Channel channel_;
  Rails rails_;
  std::shared_ptr<GpuOrder> order_ = std::make_shared<GpuOrder>();
  std::vector<VerbsLink*> links_;
  Descriptor wake_;
  bool is_armed_ = false;
  std::int64_t looked_ns_ = 0;
  unsigned polls_since_look_ = 0;
  std::uint64_t refused_count_ = 0;
};

}  // namespace gigabar::transport::rdma
