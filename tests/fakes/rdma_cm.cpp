// SPDX-License-Identifier: Apache-2.0
// The half that is librdmacm.
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "fakes/rdma.hpp"

extern "C" {
ibv_qp* ibv_create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted);
int ibv_destroy_qp(ibv_qp* pair);
}

namespace gigabar::fake_rdma {
namespace {

std::map<std::pair<std::uint32_t, std::uint16_t>, Id*> listeners;
std::vector<Id*> ids;
std::uint16_t next_port = 40000;
constexpr std::size_t kPrivateBytes = 196;  // what the other side sees: padded

Id& id_of(rdma_cm_id* id) { return *static_cast<Id*>(id); }

void tell(Id& id, rdma_cm_event_type type, int status = 0, const rdma_conn_param* asked = nullptr, Id* listener = nullptr) {
  if (id.channel == nullptr) return;
  auto event = std::make_unique<CmEvent>();
  event->id = &id;
  event->listen_id = listener;
  event->event = type;
  event->status = status;
  if (asked != nullptr) {
    const auto* const data = static_cast<const std::uint8_t*>(asked->private_data);
    event->data.assign(data, data + asked->private_data_len);
    event->data.resize(kPrivateBytes);
    if (int at = 0; fails("private_data", at)) event->data[static_cast<std::size_t>(at)] ^= 1;
    event->param.conn = *asked;
    event->param.conn.private_data = event->data.data();
    event->param.conn.private_data_len = static_cast<std::uint8_t>(event->data.size());
  }
  static_cast<CmChannel*>(id.channel)->events.push_back(std::move(event));
  signal(id.channel->fd);
}

// `route` is what a test names to have it led through the device of the next address.
bool bind_to(Id& id, std::uint32_t address, const char* route = "") {
  if (id.verbs != nullptr) return true;
  if (int unused = 0; fails(route, unused)) address = htonl(ntohl(address) + 1);
  Context* const context = open_context(address);
  if (context == nullptr) return false;
  ++context->users;
  id.verbs = context;
  id.port_num = 1;
  id.own_address = address;
  return true;
}

void note(const std::string& line) { told += line + "\n"; }

int set_path(Id& id, const void* value, std::size_t bytes) {
  ibv_path_data data{};
  constexpr std::uint32_t kTaken = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  if (bytes != sizeof data) return refuse_with_errno(EINVAL);
  std::memcpy(&data, value, sizeof data);
  // In place of resolving the route, as the kernel has it.
  if (data.flags != kTaken || id.step != Step::address) return refuse_with_errno(EINVAL);
  const ibv_path_record& path = data.path;
  id.service_level = static_cast<std::uint8_t>(be16toh(path.qosclass_sl) & 15);
  id.traffic_class = path.tclass;
  id.step = Step::route;
  std::ostringstream line;
  line << "PATH sl " << int{id.service_level} << " tclass " << int{path.tclass} << " dlid " << be16toh(path.dlid) << " slid "
       << be16toh(path.slid) << " pkey " << std::hex << be16toh(path.pkey) << " mtu " << int{path.mtu} << " rate " << int{path.rate}
       << " lifetime " << int{path.packetlifetime} << " flow " << be32toh(path.flowlabel_hoplimit) << " paths "
       << int{path.reversible_numpath} << " dgid " << int{path.dgid.raw[15]} << " sgid " << int{path.sgid.raw[15]};
  note(line.str());
  tell(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

void forget_events(Id& id) {
  if (id.channel == nullptr) return;
  std::erase_if(static_cast<CmChannel*>(id.channel)->events, [&](const auto& event) { return event->id == &id; });
}

void part(Id& id) {
  if (id.qp != nullptr) break_pair(*static_cast<Pair*>(id.qp));
  if (id.peer == nullptr) return;
  tell(*id.peer, RDMA_CM_EVENT_DISCONNECTED);
  id.peer->peer = nullptr;
  id.peer = nullptr;
}

}  // namespace
extern "C" {

// Everybody on the device is told that it goes.
void gigabar_fake_rdma_remove(const char* device) {
  for (Id* const id : ids) {
    if (id->verbs != nullptr && static_cast<Context*>(id->verbs)->spec.name == device) tell(*id, RDMA_CM_EVENT_DEVICE_REMOVAL);
  }
}

rdma_event_channel* rdma_create_event_channel() {
  int error = 0;
  if (fails("create_event_channel", error)) return refuse<rdma_event_channel>(error);
  auto* const channel = new CmChannel();
  channel->fd = ::eventfd(0, EFD_CLOEXEC);
  ++alive;
  return channel;
}
void rdma_destroy_event_channel(rdma_event_channel* channel) {
  ::close(channel->fd);
  delete static_cast<CmChannel*>(channel);
  --alive;
}
int rdma_get_cm_event(rdma_event_channel* raw, rdma_cm_event** event) {
  auto& channel = *static_cast<CmChannel*>(raw);
  std::uint64_t count = 0;
  if (channel.events.empty()) return ::read(channel.fd, &count, sizeof count) < 0 ? -1 : refuse_with_errno(EAGAIN);
  *event = channel.events.front().release();
  channel.events.pop_front();
  ++alive;
  return 0;
}
int rdma_ack_cm_event(rdma_cm_event* event) {
  delete static_cast<CmEvent*>(event);
  --alive;
  return 0;
}
const char* rdma_event_str(rdma_cm_event_type type) {
  return type == RDMA_CM_EVENT_ROUTE_ERROR ? "RDMA_CM_EVENT_ROUTE_ERROR" : "an event of the fake library";
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** result, void* context, rdma_port_space space) {
  int error = 0;
  if (fails("create_id", error)) return refuse_with_errno(error);
  auto* const id = new Id();
  id->channel = channel;
  id->context = context;
  id->ps = space;
  *result = id;
  ids.push_back(id);
  ++alive;
  return 0;
}
int rdma_destroy_id(rdma_cm_id* raw) {
  Id& id = id_of(raw);
  part(id);
  forget_events(id);
  std::erase_if(listeners, [&](const auto& entry) { return entry.second == &id; });
  if (id.verbs != nullptr) close_context(static_cast<Context*>(id.verbs));
  std::erase(ids, &id);
  delete &id;
  --alive;
  return 0;
}
int rdma_set_option(rdma_cm_id* raw, int level, int option, void* value, std::size_t bytes) {
  int error = 0;
  Id& id = id_of(raw);
  if (fails(level == RDMA_OPTION_IB ? "set_path" : "set_option", error)) return refuse_with_errno(error);
  if (level == RDMA_OPTION_IB && option == RDMA_OPTION_IB_PATH) return set_path(id, value, bytes);
  if (level == RDMA_OPTION_ID && option == RDMA_OPTION_ID_TOS && bytes == 1) {
    id.traffic_class = *static_cast<const std::uint8_t*>(value);
    note("TOS " + std::to_string(id.traffic_class));
  }
  return 0;
}
int rdma_bind_addr(rdma_cm_id* id, sockaddr* address) {
  int error = 0;
  if (fails("bind_addr", error)) return refuse_with_errno(error);
  if (address->sa_family != AF_INET) return refuse_with_errno(ENODEV);
  if (!bind_to(id_of(id), reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr)) return refuse_with_errno(ENODEV);
  id_of(id).step = Step::bound;
  return 0;
}
int rdma_listen(rdma_cm_id* raw, int) {
  int error = 0;
  if (fails("listen", error)) return refuse_with_errno(error);
  Id& id = id_of(raw);
  id.own_port = htons(next_port++);
  id.step = Step::listening;
  listeners[{id.own_address, id.own_port}] = &id;
  return 0;
}
std::uint16_t rdma_get_src_port(rdma_cm_id* id) { return id_of(id).own_port; }

int rdma_resolve_addr(rdma_cm_id* raw, sockaddr* from, sockaddr* to, int) {
  int error = 0;
  if (fails("resolve_addr", error)) return refuse_with_errno(error);
  Id& id = id_of(raw);
  if (!bind_to(id, reinterpret_cast<const sockaddr_in*>(from)->sin_addr.s_addr, "route")) return refuse_with_errno(ENODEV);
  id.peer_address = reinterpret_cast<const sockaddr_in*>(to)->sin_addr.s_addr;
  id.peer_port = reinterpret_cast<const sockaddr_in*>(to)->sin_port;
  id.step = Step::address;
  tell(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}
int rdma_resolve_route(rdma_cm_id* raw, int) {
  int error = 0;
  Id& id = id_of(raw);
  if (fails("resolve_route", error)) return refuse_with_errno(error);
  if (id.step != Step::address) return refuse_with_errno(EINVAL);
  if (fails("route_event", error)) {
    tell(id, RDMA_CM_EVENT_ROUTE_ERROR, -error);
    return 0;
  }
  ibv_sa_path_rec& path = id.path;
  path.dgid.raw[15] = 2;
  path.sgid.raw[15] = 1;
  path.dlid = htobe16(0x12);
  path.slid = htobe16(0x34);
  path.flow_label = htobe32(0xabcde);
  path.hop_limit = 64;
  path.traffic_class = id.traffic_class;
  path.pkey = htobe16(0xffff);
  path.mtu = IBV_MTU_4096;
  path.rate = 16;
  path.packet_life_time = 18;
  id.route.path_rec = &path;
  id.route.num_paths = fails("paths", error) ? 0 : 1;
  id.step = Step::route;
  tell(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

int rdma_create_qp(rdma_cm_id* id, ibv_pd* domain, ibv_qp_init_attr* wanted) {
  ibv_qp* const pair = ibv_create_qp(domain, wanted);
  if (pair == nullptr) return -1;
  id->qp = pair;
  return 0;
}
void rdma_destroy_qp(rdma_cm_id* id) {
  ibv_destroy_qp(id->qp);
  id->qp = nullptr;
}

int rdma_connect(rdma_cm_id* raw, rdma_conn_param* asked) {
  int error = 0;
  if (fails("connect", error)) return refuse_with_errno(error);
  Id& id = id_of(raw);
  const auto found = listeners.find({id.peer_address, id.peer_port});
  if (found == listeners.end()) {
    tell(id, RDMA_CM_EVENT_REJECTED, 8);
    return 0;
  }
  Id& listener = *found->second;
  auto* const request = new Id();
  ids.push_back(request);
  ++alive;
  request->channel = listener.channel;
  request->step = Step::requested;
  bind_to(*request, listener.own_address, "request_route");
  // The acceptor's queue pair has what the request carries.
  request->service_level = id.service_level;
  request->traffic_class = id.traffic_class;
  request->peer = &id;
  id.peer = request;
  tell(*request, RDMA_CM_EVENT_CONNECT_REQUEST, 0, asked, &listener);
  return 0;
}
int rdma_accept(rdma_cm_id* raw, rdma_conn_param* answered) {
  int error = 0;
  if (fails("accept", error)) return refuse_with_errno(error);
  Id& id = id_of(raw);
  if (id.peer == nullptr || id.peer->qp == nullptr) return refuse_with_errno(EINVAL);
  for (Id* const end : {&id, id.peer}) {
    auto& pair = *static_cast<Pair*>(end->qp);
    pair.service_level = end->service_level;
    pair.traffic_class = end->traffic_class;
    end->step = Step::connected;
  }
  connect_pairs(*static_cast<Pair*>(id.qp), *static_cast<Pair*>(id.peer->qp));
  tell(*id.peer, RDMA_CM_EVENT_ESTABLISHED, 0, answered);
  return 0;
}
int rdma_reject(rdma_cm_id* raw, const void* data, std::uint8_t bytes) {
  Id& id = id_of(raw);
  rdma_conn_param refusal{};
  refusal.private_data = data;
  refusal.private_data_len = bytes;
  if (id.peer == nullptr) return 0;
  tell(*id.peer, RDMA_CM_EVENT_REJECTED, 28, &refusal);
  id.peer->peer = nullptr;
  id.peer = nullptr;
  return 0;
}
int rdma_disconnect(rdma_cm_id* raw) {
  part(id_of(raw));
  return 0;
}

}  // extern "C"

}  // namespace gigabar::fake_rdma
