// SPDX-License-Identifier: Apache-2.0
// The half that is libibverbs, and what tests steer.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "fakes/rdma.hpp"

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

namespace gigabar::fake_rdma {

int alive = 0;
int overflows = 0;
std::string told;

namespace {

struct Planned {
  int error = 0;
  int skip = 0;
};
std::map<std::string, Planned> planned;
ibv_wc_status planned_completion = IBV_WC_SUCCESS;  // success: none
std::atomic<bool> are_completions_held = false;
int completions_before = 0;  // that pass before it
std::map<std::uint32_t, ibv_mr*> regions;
std::map<std::uint32_t, int> accesses;  // that they allow
int writes = 0, messages = 0, send_calls = 0;
std::size_t registered_bytes = 0;
std::uint32_t next_key = 1;
std::uint32_t next_pair = 100;

std::vector<Spec> listed() {
  std::vector<Spec> all;
  const char* text = std::getenv("GIGABAR_FAKE_RDMA_DEVICES");
  std::istringstream devices(text != nullptr ? text : "");
  for (std::string line; std::getline(devices, line, ';');) {
    Spec spec;
    std::istringstream words(line);
    std::string address;
    words >> spec.name >> address;
    ::inet_pton(AF_INET, address.c_str(), &spec.address);
    for (std::string word; words >> word;) {
      spec.is_down = spec.is_down || word == "down";
      spec.is_infiniband = spec.is_infiniband || word == "infiniband";
      spec.is_iwarp = spec.is_iwarp || word == "iwarp";
      spec.has_atomics = spec.has_atomics && word != "no_atomics";
      spec.is_unordered = spec.is_unordered || word == "unordered";
      spec.is_soft = spec.is_soft || word == "soft";
    }
    if (!spec.name.empty()) all.push_back(std::move(spec));
  }
  return all;
}

// For ever: an opened device points at its entry.
std::deque<Device>& devices() {
  static std::deque<Device> all = [] {
    std::deque<Device> made;
    for (Spec& spec : listed()) {
      Device& device = made.emplace_back();
      device.transport_type = spec.is_iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
      std::snprintf(device.name, sizeof device.name, "%s", spec.name.c_str());
      device.spec = std::move(spec);
    }
    return made;
  }();
  return all;
}

std::vector<Context*> opened;

void flush(Pair& pair) {
  pair.state = IBV_QPS_ERR;
  for (const Receive& receive : std::exchange(pair.receives, {})) {
    ibv_wc completion{};
    completion.wr_id = receive.id;
    completion.status = IBV_WC_WR_FLUSH_ERR;
    complete(pair.recv_cq, completion);
  }
}

bool is_inside(const ibv_mr& region, std::uint64_t address, std::uint64_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(region.addr);
  return address >= first && bytes <= region.length && address - first <= region.length - bytes;
}

ibv_wc_status move_message(Pair& pair, const ibv_sge& piece) {
  Pair* const peer = pair.peer;
  if (peer == nullptr || peer->state != IBV_QPS_RTS) return IBV_WC_RETRY_EXC_ERR;
  if (peer->receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
  const Receive receive = peer->receives.front();
  peer->receives.pop_front();
  if (receive.piece.length < piece.length) return IBV_WC_REM_INV_REQ_ERR;
  auto* const there = reinterpret_cast<std::uint8_t*>(receive.piece.addr);
  std::memcpy(there, reinterpret_cast<const void*>(piece.addr), piece.length);
  if (int first_byte = 0; fails("message", first_byte)) there[0] = static_cast<std::uint8_t>(first_byte);
  ibv_wc completion{};
  completion.wr_id = receive.id;
  completion.opcode = IBV_WC_RECV;
  completion.byte_len = piece.length;
  complete(peer->recv_cq, completion);
  return IBV_WC_SUCCESS;
}

ibv_wc_status fetch_and_add(const ibv_send_wr& request) {
  const auto remote = regions.find(request.wr.atomic.rkey);
  if (remote == regions.end() || (accesses[remote->first] & IBV_ACCESS_REMOTE_ATOMIC) == 0 ||
      request.wr.atomic.remote_addr % 8 != 0 || !is_inside(*remote->second, request.wr.atomic.remote_addr, 8))
    return IBV_WC_REM_ACCESS_ERR;
  auto* const there = reinterpret_cast<std::uint64_t*>(request.wr.atomic.remote_addr);
  std::memcpy(reinterpret_cast<void*>(request.sg_list[0].addr), there, sizeof *there);
  *there += request.wr.atomic.compare_add;
  return IBV_WC_SUCCESS;
}

void place_late(Pair& pair) {
  if (!pair.late_bytes.empty()) std::memcpy(pair.late_place, pair.late_bytes.data(), pair.late_bytes.size());
  pair.late_bytes.clear();
}

// What must be after earlier writes, by the specification: messages and atomics; and what is fenced behind a read's answer.
bool is_behind_writes(const ibv_send_wr& request) {
  return request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
         (request.send_flags & IBV_SEND_FENCE) != 0;
}

ibv_wc_status carry_out(Pair& pair, const ibv_send_wr& request) {
  if (planned_completion != IBV_WC_SUCCESS && completions_before-- == 0) return std::exchange(planned_completion, IBV_WC_SUCCESS);
  const ibv_sge& piece = request.sg_list[0];
  const auto local = regions.find(piece.lkey);
  const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (!is_inline && (local == regions.end() || !is_inside(*local->second, piece.addr, piece.length))) return IBV_WC_LOC_PROT_ERR;
  if (is_behind_writes(request)) place_late(pair);
  if (request.opcode == IBV_WR_SEND) {
    ++messages;
    return move_message(pair, piece);
  }
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return fetch_and_add(request);
  const auto remote = regions.find(request.wr.rdma.rkey);
  if (remote == regions.end() || !is_inside(*remote->second, request.wr.rdma.remote_addr, piece.length))
    return IBV_WC_REM_ACCESS_ERR;
  auto* const here = reinterpret_cast<void*>(piece.addr);
  auto* const there = reinterpret_cast<void*>(request.wr.rdma.remote_addr);
  if (request.opcode == IBV_WR_RDMA_WRITE) {
    ++writes;
    if (static_cast<Context*>(pair.context)->spec.is_unordered && pair.late_bytes.empty()) {
      const auto* const bytes = static_cast<const std::byte*>(here);
      pair.late_place = there;
      pair.late_bytes.assign(bytes, bytes + piece.length);
      return IBV_WC_SUCCESS;
    }
    std::memcpy(there, here, piece.length);
  } else {
    std::memcpy(here, there, piece.length);
  }
  return IBV_WC_SUCCESS;
}

int post_one(Pair& pair, ibv_send_wr& request) {
  int error = 0;
  if (fails("post_send", error)) return error;
  const bool is_atomic = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
  if (is_atomic && !static_cast<Context*>(pair.context)->spec.has_atomics) return EINVAL;
  ibv_wc completion{};
  completion.wr_id = request.wr_id;
  const bool is_flushed = pair.state == IBV_QPS_ERR;
  if (int unused = 0; !is_flushed && fails("completion", unused)) return 0;
  completion.status = is_flushed ? IBV_WC_WR_FLUSH_ERR : carry_out(pair, request);
  if (completion.status != IBV_WC_SUCCESS || (request.send_flags & IBV_SEND_SIGNALED) != 0) complete(pair.send_cq, completion);
  if (completion.status != IBV_WC_SUCCESS && !is_flushed) flush(pair);
  return 0;
}

int post_send(ibv_qp* pair, ibv_send_wr* request, ibv_send_wr** refused) {
  ++send_calls;
  for (; request != nullptr; request = request->next) {
    *refused = request;
    if (const int error = post_one(*static_cast<Pair*>(pair), *request); error != 0) return error;
  }
  *refused = nullptr;  // as of soft-RoCE's library, whose doorbell is a system call
  int error = 0;
  return fails("doorbell", error) ? error : 0;
}

int post_receive(ibv_qp* raw, ibv_recv_wr* request, ibv_recv_wr** refused) {
  auto& pair = *static_cast<Pair*>(raw);
  for (; request != nullptr; request = request->next) {
    int error = 0;
    if (fails("post_recv", error)) {
      *refused = request;
      return error;
    }
    pair.receives.push_back({request->wr_id, request->sg_list[0]});
  }
  if (pair.state == IBV_QPS_ERR) flush(pair);
  return 0;
}

int poll(ibv_cq* raw, int count, ibv_wc* completions) {
  auto& queue = *static_cast<Queue*>(raw);
  int error = 0;
  if (fails("poll_cq", error)) return error;
  if (queue.sender != nullptr) place_late(*queue.sender);  // before anybody hears that it is done
  int taken = 0;
  if (are_completions_held) return taken;
  for (; taken < count && !queue.completions.empty(); ++taken) {
    completions[taken] = queue.completions.front();
    queue.completions.pop_front();
  }
  return taken;
}

int arm(ibv_cq* queue, int) {
  int error = 0;
  if (fails("req_notify_cq", error)) return error;
  static_cast<Queue*>(queue)->is_armed = true;
  return 0;
}

}  // namespace

bool fails(const char* call, int& error) {
  const auto found = planned.find(call);
  if (found == planned.end() || found->second.skip-- > 0) return false;
  error = found->second.error;
  planned.erase(found);
  return true;
}

void signal(int descriptor) {
  const std::uint64_t one = 1;
  if (::write(descriptor, &one, sizeof one) < 0) std::abort();
}

void complete(ibv_cq* raw, const ibv_wc& completion) {
  auto& queue = *static_cast<Queue*>(raw);
  if (queue.completions.size() >= static_cast<std::size_t>(queue.cqe)) ++overflows;
  queue.completions.push_back(completion);
  if (!std::exchange(queue.is_armed, false) || queue.channel == nullptr) return;
  static_cast<Channel*>(queue.channel)->events.push_back(&queue);
  signal(queue.channel->fd);
}

Context* open_context(std::uint32_t address) {
  for (Device& device : devices()) {
    if (device.spec.address != address) continue;
    for (Context* const context : opened) {
      if (context->device == &device) return context;
    }
    auto* const context = new Context();
    context->spec = device.spec;
    context->device = &device;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_receive;
    context->ops.poll_cq = poll;
    context->ops.req_notify_cq = arm;
    context->async_fd = ::eventfd(0, EFD_CLOEXEC);
    opened.push_back(context);
    ++alive;
    return context;
  }
  return nullptr;
}

void close_context(Context* context) {
  if (--context->users > 0) return;
  std::erase(opened, context);
  ::close(context->async_fd);
  delete context;
  --alive;
}

const std::vector<Context*>& contexts() { return opened; }

void connect_pairs(Pair& first, Pair& second) {
  first.peer = &second;
  second.peer = &first;
  first.state = second.state = IBV_QPS_RTS;
}

void break_pair(Pair& pair) {
  flush(pair);
  if (pair.peer != nullptr) flush(*pair.peer);
}

extern "C" {

int gigabar_fake_rdma_alive() { return alive; }
int gigabar_fake_rdma_overflows() { return overflows; }
const char* gigabar_fake_rdma_told() { return told.c_str(); }
// The call of that name fails once, after `skip` that do not. Besides calls: "doorbell" of requests that were posted; "message"
// arrives with `error` as its first byte, "private_data" with another byte at `error`, "completion" of a posted request never
// comes, and "route" and "request_route" lead through the device of the next address.
void gigabar_fake_rdma_fail(const char* call, int error, int skip) { planned[call] = {error, skip}; }
// The work request that is posted after `skip` others ends with this status.
void gigabar_fake_rdma_complete(int status, int skip) {
  planned_completion = static_cast<ibv_wc_status>(status);
  completions_before = skip;
}
// While completions are held nobody is told of one.
void gigabar_fake_rdma_hold(bool is_held) { are_completions_held = is_held; }
// RDMA writes and messages that were carried out, calls of ibv_post_send(), and bytes that are registered.
int gigabar_fake_rdma_writes() { return writes; }
int gigabar_fake_rdma_send_calls() { return send_calls; }
int gigabar_fake_rdma_messages() { return messages; }
std::size_t gigabar_fake_rdma_registered() { return registered_bytes; }
// An asynchronous event of the device.
void gigabar_fake_rdma_raise(const char* device, int type) {
  for (Context* const context : contexts()) {
    if (context->spec.name != device) continue;
    ibv_async_event event{};
    event.event_type = static_cast<ibv_event_type>(type);
    context->events.push_back(event);
    signal(context->async_fd);
  }
}

ibv_device** ibv_get_device_list(int* count) {
  int error = 0;
  if (fails("get_device_list", error)) return refuse<ibv_device*>(error);
  auto** const list = new ibv_device*[devices().size() + 1];
  std::size_t taken = 0;
  for (Device& device : devices()) list[taken++] = &device;
  list[taken] = nullptr;
  if (count != nullptr) *count = static_cast<int>(taken);
  return list;
}
void ibv_free_device_list(ibv_device** list) { delete[] list; }
const char* ibv_get_device_name(ibv_device* device) { return device->name; }
// Contexts are the connection manager's.
ibv_context* ibv_open_device(ibv_device*) { return refuse<ibv_context>(ENODEV); }
int ibv_close_device(ibv_context*) { return EINVAL; }

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  int error = 0;
  if (fails("query_device", error)) return error;
  *attributes = {};
  attributes->phys_port_cnt = 1;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  attributes->vendor_id = static_cast<Context*>(context)->spec.is_soft ? 0xffffff : 0x2c9;
  attributes->atomic_cap = static_cast<Context*>(context)->spec.has_atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  return 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* answer) {
  const Spec& spec = static_cast<Context*>(context)->spec;
  auto* const attributes = reinterpret_cast<ibv_port_attr*>(answer);
  attributes->state = spec.is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes->link_layer = spec.is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  attributes->max_msg_sz = 1u << 30;
  attributes->active_mtu = IBV_MTU_4096;
  return 0;
}

int ibv_query_gid(ibv_context* context, std::uint8_t, int index, ibv_gid* gid) {
  if (index != 3) return -1;
  const std::uint32_t address = static_cast<Context*>(context)->spec.address;
  std::memset(gid, 0, sizeof *gid);
  gid->raw[10] = gid->raw[11] = 0xff;
  std::memcpy(gid->raw + 12, &address, sizeof address);
  return 0;
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  int error = 0;
  if (fails("alloc_pd", error)) return refuse<ibv_pd>(error);
  ++alive;
  auto* const domain = new ibv_pd();
  domain->context = context;
  return domain;
}
int ibv_dealloc_pd(ibv_pd* domain) {
  delete domain;
  --alive;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int access) {
  int error = 0;
  if (fails("reg_mr", error)) return refuse<ibv_mr>(error);
  auto* const region = new ibv_mr();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->lkey = region->rkey = next_key++;
  regions[region->lkey] = region;
  accesses[region->lkey] = access;
  registered_bytes += bytes;
  if ((access & IBV_ACCESS_RELAXED_ORDERING) != 0) told += "RELAXED\n";
  ++alive;
  return region;
}
int ibv_dereg_mr(ibv_mr* region) {
  regions.erase(region->lkey);
  registered_bytes -= region->length;
  delete region;
  --alive;
  return 0;
}

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  int error = 0;
  if (fails("create_comp_channel", error)) return refuse<ibv_comp_channel>(error);
  auto* const channel = new Channel();
  channel->context = context;
  channel->fd = ::eventfd(0, EFD_CLOEXEC);
  ++alive;
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  ::close(channel->fd);
  delete static_cast<Channel*>(channel);
  --alive;
  return 0;
}
int ibv_get_cq_event(ibv_comp_channel* raw, ibv_cq** queue, void** context) {
  auto& channel = *static_cast<Channel*>(raw);
  std::uint64_t count = 0;
  if (channel.events.empty()) return ::read(channel.fd, &count, sizeof count) < 0 ? -1 : refuse_with_errno(EAGAIN);
  *queue = channel.events.front();
  *context = (*queue)->cq_context;
  channel.events.pop_front();
  return 0;
}
void ibv_ack_cq_events(ibv_cq*, unsigned) {}

int ibv_get_async_event(ibv_context* raw, ibv_async_event* event) {
  auto& context = *static_cast<Context*>(raw);
  std::uint64_t count = 0;
  if (context.events.empty()) return ::read(context.async_fd, &count, sizeof count) < 0 ? -1 : refuse_with_errno(EAGAIN);
  *event = context.events.front();
  context.events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event*) {}
const char* ibv_event_type_str(ibv_event_type type) {
  return type == IBV_EVENT_DEVICE_FATAL ? "local catastrophic error" : "event";
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* owner, ibv_comp_channel* channel, int) {
  int error = 0;
  if (fails("create_cq", error)) return refuse<ibv_cq>(error);
  auto* const queue = new Queue();
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = owner;
  queue->cqe = entries;
  ++alive;
  return queue;
}
int ibv_destroy_cq(ibv_cq* queue) {
  if (queue->channel != nullptr) std::erase(static_cast<Channel*>(queue->channel)->events, queue);
  delete static_cast<Queue*>(queue);
  --alive;
  return 0;
}

ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  int error = 0;
  if (fails("create_qp", error)) return refuse<ibv_qp>(error);
  auto* const pair = new Pair();
  pair->context = domain->context;
  pair->pd = domain;
  pair->send_cq = wanted->send_cq;
  pair->recv_cq = wanted->recv_cq;
  pair->qp_num = next_pair++;
  pair->state = IBV_QPS_INIT;
  static_cast<Queue*>(wanted->send_cq)->sender = pair;
  ++alive;
  return pair;
}
int ibv_modify_qp(ibv_qp*, ibv_qp_attr*, int) { return 0; }
int ibv_query_qp(ibv_qp* raw, ibv_qp_attr* attributes, int, ibv_qp_init_attr*) {
  const auto& pair = *static_cast<Pair*>(raw);
  *attributes = {};
  attributes->path_mtu = IBV_MTU_4096;
  attributes->ah_attr.sl = pair.service_level;
  attributes->ah_attr.is_global = static_cast<Context*>(pair.context)->spec.is_infiniband ? 0 : 1;
  attributes->ah_attr.grh.sgid_index = 3;
  attributes->ah_attr.grh.traffic_class = pair.traffic_class;
  return 0;
}
int ibv_destroy_qp(ibv_qp* raw) {
  auto* const pair = static_cast<Pair*>(raw);
  if (pair->peer != nullptr) pair->peer->peer = nullptr;
  static_cast<Queue*>(pair->send_cq)->sender = nullptr;
  delete pair;
  --alive;
  return 0;
}

const char* ibv_wc_status_str(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR: return "transport retry counter exceeded";
    case IBV_WC_WR_FLUSH_ERR: return "Work Request Flushed Error";
    case IBV_WC_REM_ACCESS_ERR: return "remote access error";
    default: return "another status of the fake library";
  }
}

}  // extern "C"

}  // namespace gigabar::fake_rdma
