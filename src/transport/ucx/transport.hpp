// SPDX-License-Identifier: Apache-2.0
// The UCX transport, what open_ucx() gives, and what all its links share: UCX's context and worker, an endpoint per link, the
// active messages on their way out, who is at home here, and what is to be told to the sink. Callbacks of UCX end here; they reach
// a link only through its endpoint, which forgets it first, or by its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/ucp/ucp.hpp"
#include "transport/transport.hpp"
#include "transport/ucx/wire.hpp"

namespace gigabar::transport::ucx {

struct Endpoint;
class UcxLink;
class UcxTransport;

// One active message from when it is made until UCX needs neither header nor data.
struct Operation {
  WireHeader header;
  std::vector<std::byte> copy;      // data that belongs to this object
  std::span<const std::byte> data;  // what is sent: of `copy`, or the caller's memory
  Endpoint* endpoint = nullptr;     // while UCX has it
  void* owner = nullptr;            // the sender's; not looked at here
};

// Links read `is_lost` and `under_way` only.
struct Endpoint {
  UcxTransport* transport = nullptr;
  ucp_ep_h handle = nullptr;  // null: closed
  UcxLink* link = nullptr;    // null: nobody is told
  void* closing = nullptr;    // UCX's request
  unsigned under_way = 0;     // operations that UCX has
  bool is_lost = false;
  std::int64_t close_at_ns = 0;  // without a link: when it is to be closed
};

// Outlives its links.
class UcxTransport final : public PlacedTransport {
 public:
  // Listens at the interfaces that the options name, whatever UCX_NET_DEVICES says: UCX obeys whoever connects. Errors: unavailable
  // (UCX's availability; no network that it can use), out_of_memory, out_of_descriptors, device_error.
  static Result<std::unique_ptr<UcxTransport>> open(const TransportOptions& options);
  // Ends everything under way within some seconds.
  ~UcxTransport() override;

  std::string address() const override;
  Availability can_reach(const Peer& peer) const override;
  Result<std::unique_ptr<Link>> offer(const Peer& peer, std::size_t rail, Parcel& offer) override;
  Result<std::unique_ptr<Link>> accept(const Peer& peer, Parcel offer, Parcel& answer) override;
  bool poll(Sink& sink) override;
  bool arm() override;
  int wake_descriptor() const noexcept override { return wake_descriptor_; }
  // Active messages that came from no link of this process: of processes that know UCX's port, and of links that are gone.
  std::uint64_t strangers() const noexcept { return strangers_; }

  // --- For the links ---
  // The sink of the poll() under way; null outside of it.
  Sink* sink() const noexcept { return sink_; }

  void add_link(std::uint64_t number, UcxLink& link);
  void remove_link(std::uint64_t number, UcxLink& link);

  // --- UCX's worker and its endpoints ---
  const std::string& worker_address() const noexcept { return worker_address_; }
  std::uint32_t piece_bytes() const noexcept { return piece_bytes_; }
  // The connection is made on the way; the first operation that fails, or the link's lost(), tells that it cannot be. Errors:
  // unavailable (no common network), out_of_memory, device_error.
  // Without a link nobody is told.
  Result<Endpoint*> connect(const std::string& address, UcxLink* link, const std::string& peer);
  // "tcp/lo": what carries this endpoint's messages, or "ucx" when UCX does not tell.
  std::string rail_of(const Endpoint& endpoint) const;
  // Cancels what is under way; the link's sent() is still called for each, later.
  void close(Endpoint& endpoint);
  // The link leaves: it is not called any more. Closes the endpoint after `linger_ns`, in which what UCX has may still go out.
  void leave(Endpoint& endpoint, std::int64_t linger_ns);

  // UCX takes it, or the link's sent() was called before this returns.
  void send(Endpoint& endpoint, std::unique_ptr<Operation> operation);

  // UCX's part of poll(). True when something happened.
  bool progress();

 private:
  // Which networks a link takes, and how many, is UCX's own choice.
  UcxTransport() : PlacedTransport(TransportKind::ucx, "UCX", {"ucx"}) {}
  Result<void> open_context(const std::string& devices);
  Result<void> open_worker();
  void arrived(const std::optional<WireHeader>& header, std::span<const std::byte> data, bool is_rendezvous);
  void finished(std::unique_ptr<Operation> operation, ucs_status_t status);
  bool tidy();

  // Exceptions do not pass through UCX.
  template <class Body>
  void guarded(Body&& body) noexcept try {
    body();
  } catch (const std::bad_alloc&) {
    is_starved_ = true;
  }
  static void on_sent(void* request, ucs_status_t status, void* operation) noexcept;
  static void on_lost(void* endpoint, ucp_ep_h handle, ucs_status_t status) noexcept;
  static ucs_status_t on_arrival(void* transport, const void* header, std::size_t header_bytes, void* data, std::size_t data_bytes,
                                 const ucp_am_recv_param_t* parameters) noexcept;

  std::unordered_map<std::uint64_t, UcxLink*> links_;
  Sink* sink_ = nullptr;
  std::uint64_t strangers_ = 0;

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int wake_descriptor_ = -1;  // the worker's
  std::string worker_address_;
  std::uint32_t piece_bytes_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::size_t leaving_count_ = 0;  // endpoints without a link, or being closed
  bool is_starved_ = false;        // something that arrived, or the end of something sent, was lost: there was no memory for it
};

// UCX's words for it, and the status that Gigabar has for it.
std::string text_of(ucs_status_t status);
NativeCode native_of(ucs_status_t status);

}  // namespace gigabar::transport::ucx
