// SPDX-License-Identifier: Apache-2.0
// The RDMA devices of this side and their ports (rails).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/in_place.hpp"
#include "driver/rdmacm/rdmacm.hpp"
#include "driver/verbs/functions.hpp"
#include "memory/host_pages.hpp"
#include "rdma/registration.hpp"
#include "transport/transport.hpp"
#include "transport/verbs/wire.hpp"

namespace gigabar::transport::rdma {

// An event channel of rdma_cm whose descriptor does not block.
struct ChannelCloser {
  void operator()(rdma_event_channel* channel) const noexcept { rdmacm::functions().rdma_destroy_event_channel(channel); }
};
using Channel = std::unique_ptr<rdma_event_channel, ChannelCloser>;

// Destroys the queue pair first, if there is one.
struct IdCloser {
  void operator()(rdma_cm_id* id) const noexcept;
};
using Id = std::unique_ptr<rdma_cm_id, IdCloser>;
// Null: see errno.
Id make_id(rdma_event_channel* channel) noexcept;

// Reads of the descriptor end with EAGAIN where they would wait. False with errno set.
bool unblock(int descriptor) noexcept;

using gigabar::rdma::call_failed;
using gigabar::rdma::is_gpu_memory;
using gigabar::rdma::Mr;
using gigabar::rdma::register_pages;
using verbs::code_of;

// Whole pages of this process, zeroed.
class Pages {
 public:
  explicit Pages(std::size_t bytes) noexcept;  // data() is null when there is no memory
  std::byte* data() const noexcept { return static_cast<std::byte*>(taken_.get()); }
  std::size_t bytes() const noexcept { return taken_.get_deleter().bytes; }

 private:
  std::unique_ptr<void, UnmapPages> taken_;
};

// One opened device, kept by everything that uses it. The context is librdmacm's, which closes it when no id is bound to the
// device.
struct Device : InPlace {
  std::string name;
  Id anchor;
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_comp_channel* channel = nullptr;  // of all completion queues on it; does not block
  ibv_device_attr attributes{};
  bool has_events = false;  // asynchronous ones, read without blocking
  bool is_gone = false;     // removed, or failed for good: its links are broken, and nothing is registered with it any more
  bool is_iwarp = false;
  bool is_rxe = false;       // soft-RoCE
  bool is_software = false;  // rxe or siw: its packets are made by the kernel's threads
  // The first word is there to be read by peers, and what they have there is read into the second: whether an adapter answers. What
  // atomics and reads bring that nobody wants goes into the third.
  Pages probe_pages{1};
  Mr probe;

  ~Device();

  std::uint64_t probe_address() const noexcept { return reinterpret_cast<std::uintptr_t>(probe_pages.data()); }
  std::uint64_t probe_sink() const noexcept { return probe_address() + 64; }
  std::uint64_t unwanted_sink() const noexcept { return probe_address() + 128; }
};

struct Rail {
  std::string name;     // "mlx5_0/1"
  RailAddress address;  // `port` is the listener's
  std::shared_ptr<Device> device;
  unsigned port = 1;
  std::uint64_t piece_bytes = 0;  // most bytes of one work request
  Id listener;                    // null: the device is gone
};

struct Rails {
  std::vector<Rail> rails;
  std::vector<std::shared_ptr<Device>> devices;
};

// The ports that the options ask for, listening on `channel`. Errors: unavailable (no port has an address, or a named one is not
// there), invalid_argument, no_permission, out_of_memory, device_error.
Result<Rails> open_rails(rdma_event_channel* channel, const TransportOptions& options);

// The socket address of a rail, with `port` (host order).
struct SocketAddress {
  sockaddr_storage storage{};
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
};
SocketAddress socket_address(const RailAddress& address, std::uint16_t port) noexcept;

}  // namespace gigabar::transport::rdma
