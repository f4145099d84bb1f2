// SPDX-License-Identifier: Apache-2.0
// A libibverbs.so.1 and a librdmacm.so.1 in one library whose devices are connected with each other inside this process: for what a
// real device seldom does. GIGABAR_FAKE_RDMA_DEVICES lists the devices as "NAME ADDRESS [down] [infiniband|iwarp] [no_atomics]
// [unordered] [soft]; ...", each with one port, RoCE unless told otherwise; soft: soft-RoCE. A write from an unordered device is
// placed as late as it may be, and one that is posted meanwhile before it, as adaptive routing may do. For one thread.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gigabar::fake_rdma {

struct Spec {
  std::string name;
  std::uint32_t address = 0;  // IPv4, network order
  bool is_down = false, is_infiniband = false, is_iwarp = false;
  bool has_atomics = true, is_unordered = false, is_soft = false;
};

struct Device : ibv_device {
  Spec spec;
};

struct Context : ibv_context {
  Spec spec;
  int users = 0;  // ids that are bound to it
  std::deque<ibv_async_event> events;
};

struct Channel : ibv_comp_channel {
  std::deque<ibv_cq*> events;
};

struct Pair;

struct Queue : ibv_cq {
  std::deque<ibv_wc> completions;
  bool is_armed = false;
  Pair* sender = nullptr;  // whose sends complete there
};

struct Receive {
  std::uint64_t id = 0;
  ibv_sge piece{};
};

struct Pair : ibv_qp {
  std::deque<Receive> receives;
  Pair* peer = nullptr;
  std::uint8_t service_level = 0, traffic_class = 0;
  void* late_place = nullptr;  // of a write that is not placed yet
  std::vector<std::byte> late_bytes;
};

struct CmEvent : rdma_cm_event {
  std::vector<std::uint8_t> data;
};

struct CmChannel : rdma_event_channel {
  std::deque<std::unique_ptr<CmEvent>> events;
};

enum class Step : std::uint8_t { idle, bound, address, route, listening, requested, connected };

struct Id : rdma_cm_id {
  Step step = Step::idle;
  std::uint32_t own_address = 0, peer_address = 0;
  std::uint16_t own_port = 0, peer_port = 0;  // network order
  std::uint8_t service_level = 0, traffic_class = 0;
  ibv_sa_path_rec path{};
  Id* peer = nullptr;
  rdma_conn_param asked{};
};

// Everything that exists, so that a test sees what was left.
extern int alive;
// Completions that found their queue full.
extern int overflows;
// What was asked of the network: "TOS 96", "PATH flags 0x2b sl 3 ..."; one per line.
extern std::string told;

// Whether this call is to fail now; its error is then in `error`.
bool fails(const char* call, int& error);
Context* open_context(std::uint32_t address);
void close_context(Context* context);
void connect_pairs(Pair& first, Pair& second);
// It and its peer get no more; what is posted comes back as flushed.
void break_pair(Pair& pair);
void complete(ibv_cq* queue, const ibv_wc& completion);
const std::vector<Context*>& contexts();
void raise_in_channel(rdma_event_channel* channel, std::unique_ptr<CmEvent> event);
void signal(int descriptor);

template <class Pointer>
Pointer* refuse(int error) {
  errno = error;
  return nullptr;
}
inline int refuse_with_errno(int error) {
  errno = error;
  return -1;
}

}  // namespace gigabar::fake_rdma
