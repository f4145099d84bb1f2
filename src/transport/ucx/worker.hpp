// SPDX-License-Identifier: Apache-2.0
// The UCX objects behind the transport: one context, one worker, an endpoint per link, and the active messages on their way out.
// Callbacks of UCX end here; they reach a link only through its endpoint, which forgets it first.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/ucp/ucp.hpp"
#include "transport/ucx/wire.hpp"

namespace gigabar::transport::ucx {

class Endpoint;
class Worker;

// One active message from when it is made until UCX needs neither header nor data.
struct Operation {
  WireHeader header;
  std::vector<std::byte> copy;      // data that belongs to this object; the capacity stays
  std::span<const std::byte> data;  // what is sent: of `copy`, or the caller's memory
  Endpoint* endpoint = nullptr;     // while UCX has it
  void* owner = nullptr;            // the sender's; not looked at here
};

// Who uses an endpoint. Called from progress(), and sent() from send() too.
class EndpointUser {
 public:
  // UCX is done with an operation. It is given back afterwards.
  virtual void sent(Operation& operation, ucs_status_t status) = 0;
  // The connection broke.
  virtual void lost(ucs_status_t status) = 0;

 protected:
  ~EndpointUser() = default;
};

class Endpoint {
 public:
  bool is_lost() const noexcept { return is_lost_; }

 private:
  friend class Worker;
  Worker* worker_ = nullptr;
  ucp_ep_h handle_ = nullptr;  // null: closed
  EndpointUser* user_ = nullptr;
  void* closing_ = nullptr;  // UCX's request
  unsigned under_way_ = 0;   // operations that UCX has
  bool is_lost_ = false;
  std::int64_t close_at_ns_ = 0;  // without a user: when it is to be closed
};

// Who gets what arrives. Called from progress() only.
class Receiver {
 public:
  // `data` is valid during the call.
  virtual void arrived(const WireHeader& header, std::span<const std::byte> data) = 0;
  // Something that is none of ours, or data of a kind that we do not send.
  virtual void stranger(const WireHeader* header) = 0;

 protected:
  ~Receiver() = default;
};

class Worker {
 public:
  // `devices`: UCX's names of the interfaces that it listens at, "eth0" or "eth0,mlx5_0:1", whatever UCX_NET_DEVICES says: it obeys
  // whoever connects. Errors: unavailable (UCX's availability; no network that it can use), out_of_memory, out_of_descriptors,
  // device_error.
  static Result<std::unique_ptr<Worker>> open(Receiver& receiver, const std::string& devices);
  // Ends everything under way within some seconds. Endpoints have no users any more.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& address() const noexcept { return address_; }
  std::uint32_t piece_bytes() const noexcept { return piece_bytes_; }

  // The connection is made on the way; the first operation that fails, or lost(), tells that it cannot be. Errors: unavailable (no
  // common network), out_of_memory, device_error.
  // Without a user nobody is told.
  Result<Endpoint*> connect(const std::string& address, EndpointUser* user, const std::string& peer);
  // "tcp/lo": what carries this endpoint's messages, or "ucx" when UCX does not tell.
  std::string rail_of(const Endpoint& endpoint) const;
  // Cancels what is under way; sent() is still called for each, later.
  void close(Endpoint& endpoint);
  // The user leaves: it is not called any more. Closes the endpoint after `linger_ns`, in which what UCX has may still go out.
  void leave(Endpoint& endpoint, std::int64_t linger_ns);

  Operation& take_operation();
  void give_back(Operation& operation);
  // UCX takes it, or the user's sent() was called before this returns.
  void send(Endpoint& endpoint, Operation& operation);

  // True when something happened.
  bool progress();
  // Whether nothing is pending: descriptor() tells then when something happens.
  bool arm();
  int descriptor() const noexcept { return descriptor_; }
  // Whether something that arrived, or the end of something sent, was lost since, because there was no memory for it. Exceptions do
  // not pass through UCX.
  bool take_starvation() noexcept { return std::exchange(is_starved_, false); }
  void starve() noexcept { is_starved_ = true; }

 private:
  explicit Worker(Receiver& receiver) noexcept;
  Result<void> open_context(const std::string& devices);
  Result<void> open_worker();
  void finished(Operation& operation, ucs_status_t status);
  bool tidy();

  static void on_sent(void* request, ucs_status_t status, void* operation) noexcept;
  static void on_lost(void* endpoint, ucp_ep_h handle, ucs_status_t status) noexcept;
  static ucs_status_t on_arrival(void* worker, const void* header, std::size_t header_bytes, void* data, std::size_t data_bytes,
                                 const ucp_am_recv_param_t* parameters) noexcept;

  Receiver& receiver_;
  pid_t process_;  // that opened it: a child after fork has neither its threads nor a right to its connections
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;  // the worker's
  std::string address_;
  std::uint32_t piece_bytes_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  bool is_starved_ = false;
  std::size_t leaving_count_ = 0;  // endpoints without a user, or being closed
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
};

// UCX's words for it, and the status that Gigabar has for it.
std::string text_of(ucs_status_t status);
NativeCode native_of(ucs_status_t status);

}  // namespace gigabar::transport::ucx
