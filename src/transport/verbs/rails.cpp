// SPDX-License-Identifier: Apache-2.0
// Which ports of RDMA devices are used, and how they are opened. A port is known by an IP address, because that is how rdma_cm
// finds it: binding to the address chooses device, port and GID.
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/errors.hpp"
#include "base/insertion_sort.hpp"
#include "base/log.hpp"
#include "base/rounding.hpp"
#include "driver/verbs/verbs.hpp"
#include "gigabar/topology.hpp"
#include "rdma/rail_order.hpp"
#include "transport/verbs/device.hpp"

namespace gigabar::transport::rdma {

void IdCloser::operator()(rdma_cm_id* id) const noexcept {
  if (id->qp != nullptr) rdmacm::functions().rdma_destroy_qp(id);
  rdmacm::functions().rdma_destroy_id(id);
}

Id make_id(rdma_event_channel* channel) noexcept {
  rdma_cm_id* id = nullptr;
  return Id(rdmacm::functions().rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0 ? id : nullptr);
}

bool unblock(int descriptor) noexcept {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) == 0;
}

Pages::Pages(std::size_t bytes) noexcept {
  const std::size_t whole_bytes = round_up(bytes, host_page_bytes());
  void* const address = ::mmap(nullptr, whole_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return;
  taken_ = {address, UnmapPages{whole_bytes}};
  // A child that this process forks must not make the adapter's pages copies: it does without them.
  ::madvise(address, whole_bytes, MADV_DONTFORK);
}

Device::~Device() {
  probe.reset();
  if (channel != nullptr) verbs::functions().ibv_destroy_comp_channel(channel);
  if (domain != nullptr) verbs::functions().ibv_dealloc_pd(domain);
}

SocketAddress socket_address(const RailAddress& address, std::uint16_t port) noexcept {
  SocketAddress result;
  if (address.is_ipv6) {
    auto* const ipv6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
    ipv6->sin6_family = AF_INET6;
    ipv6->sin6_port = htons(port);
    std::memcpy(&ipv6->sin6_addr, address.bytes.data(), sizeof ipv6->sin6_addr);
  } else {
    auto* const ipv4 = reinterpret_cast<sockaddr_in*>(&result.storage);
    ipv4->sin_family = AF_INET;
    ipv4->sin_port = htons(port);
    std::memcpy(&ipv4->sin_addr, address.bytes.data(), sizeof ipv4->sin_addr);
  }
  return result;
}

// --- Which of them are used ------------------------------------------------------------------------------------------------------

namespace {

constexpr int kBacklog = 128;
// Sent in one work request; rxe takes no more, and larger ones only make others wait.
constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;
// What the kernel's software devices say instead of a vendor's number.
constexpr std::uint32_t kVendorOfRxe = 0xffffff;
constexpr std::uint32_t kVendorOfSiw = 0x626d74;
constexpr int kMaxEthernetPriority = 7;

// A port with the address it was found by: a rail without its device and listener.
struct Candidate {
  std::string device;
  Rail rail;
  Id id;  // bound to it
};

std::span<const std::uint8_t> bytes_of(const sockaddr* address, bool is_ipv6) {
  if (is_ipv6) return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
  return {reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr), sizeof(in_addr)};
}

// Nothing: an address that no link can use.
std::optional<RailAddress> address_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_LOOPBACK) != 0) return {};
  RailAddress address;
  address.is_ipv6 = entry.ifa_addr->sa_family == AF_INET6;
  if (!address.is_ipv6 && entry.ifa_addr->sa_family != AF_INET) return {};
  const auto bytes = bytes_of(entry.ifa_addr, address.is_ipv6);
  // It means nothing without the interface, whose number the peer cannot know.
  if (address.is_ipv6 && IN6_IS_ADDR_LINKLOCAL(reinterpret_cast<const in6_addr*>(bytes.data()))) return {};
  std::copy(bytes.begin(), bytes.end(), address.bytes.begin());
  if (entry.ifa_netmask == nullptr) return address;
  for (const std::uint8_t byte : bytes_of(entry.ifa_netmask, address.is_ipv6))
    address.prefix_bits = static_cast<std::uint8_t>(address.prefix_bits + std::popcount(byte));
  return address;
}

std::vector<RailAddress> addresses_of_host() {
  std::vector<RailAddress> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (const auto address = address_of(*entry)) addresses.push_back(*address);
  }
  ::freeifaddrs(list);
  // IPv4 first: where both lead to a port, it is the one that fabrics are set up and tested with.
  insertion_sort(addresses, [](const RailAddress& first, const RailAddress& second) { return first.is_ipv6 < second.is_ipv6; });
  return addresses;
}

Technology technology_of(const ibv_context& context, const ibv_port_attr& port) {
  if (context.device->transport_type == IBV_TRANSPORT_IWARP) return Technology::iwarp;
  return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Technology::roce : Technology::infiniband;
}

bool is_gid_of(ibv_context* context, unsigned port, int index, const RailAddress& address) {
  ibv_gid gid{};
  if (verbs::functions().ibv_query_gid(context, static_cast<std::uint8_t>(port), index, &gid) != 0) return false;
  std::array<std::uint8_t, 16> wanted = address.bytes;
  if (!address.is_ipv6) wanted = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, wanted[0], wanted[1], wanted[2], wanted[3]};
  return std::memcmp(gid.raw, wanted.data(), wanted.size()) == 0;
}

// Nothing: no RDMA device has that address, its port is down, or its GID is not the wanted one.
std::optional<Candidate> candidate_at(const RailAddress& address, const TransportOptions& options) {
  Candidate candidate;
  candidate.id = make_id(nullptr);
  if (candidate.id == nullptr) return {};
  rdma_cm_id* const raw = candidate.id.get();
  SocketAddress socket = socket_address(address, 0);
  if (rdmacm::functions().rdma_bind_addr(raw, socket.get()) != 0 || raw->verbs == nullptr) return {};
  candidate.device = verbs::functions().ibv_get_device_name(raw->verbs->device);
  candidate.rail.name = text(candidate.device, "/", unsigned{raw->port_num});
  candidate.rail.port = raw->port_num;
  ibv_port_attr port{};
  if (verbs::functions().ibv_query_port(raw->verbs, raw->port_num, reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) return {};
  if (port.state != IBV_PORT_ACTIVE) return {};
  candidate.rail.address = address;
  candidate.rail.address.technology = technology_of(*raw->verbs, port);
  candidate.rail.piece_bytes = std::min(kPieceBytes, std::max<std::uint64_t>(port.max_msg_sz, 4096));
  const bool has_gid = options.gid_index >= 0 && candidate.rail.address.technology == Technology::roce;
  if (has_gid && !is_gid_of(raw->verbs, raw->port_num, options.gid_index, address)) return {};
  return candidate;
}

// The first address of each port, in the order of the library's devices.
std::vector<Candidate> find_candidates(const TransportOptions& options) {
  std::vector<Candidate> found;
  for (const RailAddress& address : addresses_of_host()) {
    auto candidate = candidate_at(address, options);
    if (!candidate) continue;
    const auto is_same = [&](const Candidate& other) { return other.rail.name == candidate->rail.name; };
    if (std::ranges::none_of(found, is_same)) found.push_back(std::move(*candidate));
  }
  const auto names = verbs::device_names();
  const auto place = [&](const Candidate& candidate) {
    if (!names) return std::size_t{0};
    return static_cast<std::size_t>(std::find(names->begin(), names->end(), candidate.device) - names->begin());
  };
  insertion_sort(found, [&](const Candidate& first, const Candidate& second) {
    return std::pair(place(first), first.rail.port) < std::pair(place(second), second.rail.port);
  });
  return found;
}

Result<std::vector<Candidate>> take_named(std::vector<Candidate> found, const std::vector<std::string>& wanted) {
  std::vector<Candidate> chosen;
  for (const std::string& name : wanted) {
    const auto is_named = [&](const Candidate& one) { return name == one.device || name == one.rail.name; };
    const auto match = std::ranges::find_if(found, is_named);
    if (match == found.end()) {
      return make_error(Status::unavailable, "open rail", name,
                        text("no active port of that name has an IP address, or it was named twice; left are: ",
                             found.empty() ? "none" : joined(found, ", ", [](const Candidate& one) { return one.rail.name; })),
                        "see 'rdma link' and 'ip address'");
    }
    chosen.push_back(std::move(*match));
    found.erase(match);
  }
  return chosen;
}

// Nearest to the GPU first, as far as the machine's tree is known.
void sort_by_distance(std::vector<Candidate>& found, const TransportOptions& options) {
  std::optional<Topology> here;
  if (options.topology == nullptr) {
    auto discovered = discover_topology(Machine::here());
    if (!discovered) return;  // it was logged why
    here = std::move(*discovered);
  }
  std::vector<std::string> devices;
  for (const Candidate& candidate : found) devices.push_back(candidate.device);
  std::vector<Candidate> sorted;
  for (const std::size_t index :
       gigabar::rdma::nearest_first(here ? *here : *options.topology, options.near_device, devices, options.local_rank))
    sorted.push_back(std::move(found[index]));
  found = std::move(sorted);
}

Error no_rails(const TransportOptions& options) {
  const auto names = verbs::device_names();
  if (!names) return names.error();
  if (names->empty()) {
    return make_error("open verbs", "RDMA devices",
                      Availability{AvailabilityCode::no_device, "this machine has no RDMA device that libibverbs knows",
                                   "load the adapter's driver; a container needs /dev/infiniband"});
  }
  const std::string gid = options.gid_index >= 0 ? text(" with GID index ", options.gid_index) : "";
  return make_error(Status::unavailable, "open verbs", text(names->size(), " RDMA device(s)"),
                    text("no active port of theirs has an IP address", gid, " that rdma_cm knows"),
                    "bring the link up and give its network interface an address (InfiniBand: IPoIB); see 'rdma link'");
}

Result<void> fill(Device& device) {
  const auto& functions = verbs::functions();
  if (const int result = functions.ibv_query_device(device.context, &device.attributes); result != 0)
    return call_failed("ibv_query_device", device.name, code_of(result));
  device.is_iwarp = device.context->device->transport_type == IBV_TRANSPORT_IWARP;
  device.is_rxe = device.attributes.vendor_id == kVendorOfRxe;
  device.is_software = device.is_rxe || device.attributes.vendor_id == kVendorOfSiw;
  errno = 0;
  device.domain = functions.ibv_alloc_pd(device.context);
  if (device.domain == nullptr) return call_failed("ibv_alloc_pd", device.name, errno);
  errno = 0;
  device.channel = functions.ibv_create_comp_channel(device.context);
  if (device.channel == nullptr) return call_failed("ibv_create_comp_channel", device.name, errno);
  if (!unblock(device.channel->fd)) return call_failed("fcntl", text("completion channel of ", device.name), errno);
  // The context is shared with other users of librdmacm in this process, which hardly read them.
  device.has_events =
      functions.ibv_get_async_event != nullptr && functions.ibv_ack_async_event != nullptr && unblock(device.context->async_fd);
  if (device.probe_pages.data() == nullptr) return call_failed("mmap", "a page", ENOMEM);
  // iWARP writes what it reads as a peer's write.
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | (device.is_iwarp ? IBV_ACCESS_REMOTE_WRITE : 0);
  auto probe = register_pages(device.domain, device.name, device.probe_pages.data(), device.probe_pages.bytes(), access);
  if (!probe) return std::move(probe).error();
  device.probe = std::move(*probe);
  return {};
}

Result<std::shared_ptr<Device>> device_of(Rails& rails, Candidate& candidate) {
  const auto known = std::ranges::find(rails.devices, candidate.id->verbs, &Device::context);
  if (known != rails.devices.end()) return *known;
  auto device = std::make_shared<Device>();
  device->name = candidate.device;
  device->context = candidate.id->verbs;
  device->anchor = std::move(candidate.id);
  if (Result<void> filled = fill(*device); !filled) return std::move(filled).error();
  return rails.devices.emplace_back(std::move(device));
}

Result<Id> listen_at(rdma_event_channel* channel, const RailAddress& address, const std::string& name) {
  const auto& cm = rdmacm::functions();
  Id id = make_id(channel);
  if (id == nullptr) return call_failed("rdma_create_id", name, errno);
  SocketAddress socket = socket_address(address, 0);
  if (cm.rdma_bind_addr(id.get(), socket.get()) != 0)
    return call_failed("rdma_bind_addr", text(name, " ", text_of(address)), errno);
  if (cm.rdma_listen(id.get(), kBacklog) != 0) return call_failed("rdma_listen", text(name, " ", text_of(address)), errno);
  return id;
}

Result<void> add_rail(Rails& rails, rdma_event_channel* channel, Candidate candidate) {
  Rail& rail = candidate.rail;
  auto device = device_of(rails, candidate);
  if (!device) return std::move(device).error();
  rail.device = std::move(*device);
  auto listener = listen_at(channel, rail.address, rail.name);
  if (!listener) return std::move(listener).error();
  rail.listener = std::move(*listener);
  rail.address.port = ntohs(rdmacm::functions().rdma_get_src_port(rail.listener.get()));
  rails.rails.push_back(std::move(rail));
  return {};
}

// Whether connections of that kind can have the service level of the options. Errors: not_supported (iWARP has none),
// invalid_argument (Ethernet has priorities 0 to 7).
Result<void> check_service_level(const TransportOptions& options, Technology technology, const std::string& rail) {
  if (options.service_level < 0 || technology == Technology::infiniband) return {};
  const std::string object = text("service_level ", options.service_level, " on ", rail);
  if (technology == Technology::iwarp)
    return make_error(Status::not_supported, "open verbs", object, "iWARP runs over TCP, whose packets have no service level",
                      "set traffic_class instead, or name rails of InfiniBand or RoCE");
  if (options.service_level > kMaxEthernetPriority)
    return make_error(Status::invalid_argument, "open verbs", object, "over RoCE it is the Ethernet priority, 0 to 7");
  return {};
}

}  // namespace

Result<Rails> open_rails(rdma_event_channel* channel, const TransportOptions& options) {
  std::vector<Candidate> found = find_candidates(options);
  if (found.empty()) return no_rails(options);
  if (!options.rails.empty()) {
    auto named = take_named(std::move(found), options.rails);
    if (!named) return std::move(named).error();
    found = std::move(*named);
  } else {
    if (options.near_device >= 0 && found.size() > 1) sort_by_distance(found, options);
    found.resize(std::min<std::size_t>(found.size(), options.rail_count));
  }
  Rails rails;
  for (Candidate& candidate : found) {
    Result<void> fits = check_service_level(options, candidate.rail.address.technology, candidate.rail.name);
    if (!fits) return std::move(fits).error();
    if (Result<void> added = add_rail(rails, channel, std::move(candidate)); !added) return std::move(added).error();
  }
  return rails;
}

}  // namespace gigabar::transport::rdma
