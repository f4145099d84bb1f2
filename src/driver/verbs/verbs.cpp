// SPDX-License-Identifier: Apache-2.0
#include "driver/verbs/verbs.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "driver/loader.hpp"
#include "driver/verbs/device_list.hpp"
#include "driver/verbs/functions.hpp"
#include "driver/verbs/pair.hpp"

namespace gigabar::verbs {
#if GIGABAR_HAS_VERBS

const LibraryOf<Functions>& functions() {
  static const auto library =
      load_functions<Functions>("libibverbs.so.1", "GIGABAR_VERBS_LIBRARY",
                                "install rdma-core's libibverbs (package libibverbs1 or libibverbs)", "install a newer rdma-core");
  return library;
}
const Availability& availability() { return functions().availability; }

namespace {

// Of the kernel, not of user space: what a refused dma-buf attachment ends with.
constexpr int kKernelNotSupported = 524;

NativeCode native_of(int code) {
  if (code == kKernelNotSupported) return {NativeDomain::system_errno, code, "ENOTSUPP"};
  return errno_code(code);
}

Status status_of(int code) {
  const bool is_not_supported = code == EOPNOTSUPP || code == EPROTONOSUPPORT || code == ENOSYS || code == kKernelNotSupported;
  return status_of_errno(code, is_not_supported ? Status::not_supported : Status::device_error);
}

Error failed(const char* call, const std::string& object, int code) {
  return make_error(status_of(code), call, object, text(call, " failed: ", std::strerror(code)), {}, native_of(code));
}

Error no_list(const std::string& object, int code) {
  return make_error(Status::unavailable, "list RDMA devices", object, text("ibv_get_device_list failed: ", std::strerror(code)),
                    "load the kernel's RDMA interface (modprobe ib_uverbs)", native_of(code));
}

unsigned bytes_of(ibv_mtu mtu) {
  switch (mtu) {
    case IBV_MTU_256: return 256;
    case IBV_MTU_512: return 512;
    case IBV_MTU_1024: return 1024;
    case IBV_MTU_2048: return 2048;
    case IBV_MTU_4096: return 4096;
  }
  return 0;
}

}  // namespace

namespace detail {

struct Context {
  std::string name;
  ibv_context* device = nullptr;
  ibv_pd* domain = nullptr;
  ibv_device_attr attributes{};

  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() {
    if (domain != nullptr) functions().ibv_dealloc_pd(domain);
    if (device != nullptr) functions().ibv_close_device(device);
  }
};

struct RegionState {
  std::shared_ptr<Context> context;
  ibv_mr* region = nullptr;
  std::uint64_t address = 0;
  std::size_t bytes = 0;

  RegionState(std::shared_ptr<Context> owner, std::uint64_t first, std::size_t length)
      : context(std::move(owner)), address(first), bytes(length) {}
  RegionState(const RegionState&) = delete;
  RegionState& operator=(const RegionState&) = delete;
  ~RegionState() {
    if (region != nullptr) functions().ibv_dereg_mr(region);
  }
};

struct LoopState {
  std::shared_ptr<Context> context;
  ibv_cq* completions = nullptr;
  ibv_qp* pair = nullptr;
  bool is_broken = false;

  explicit LoopState(std::shared_ptr<Context> owner) : context(std::move(owner)) {}
  LoopState(const LoopState&) = delete;
  LoopState& operator=(const LoopState&) = delete;
  ~LoopState() {
    if (pair != nullptr) functions().ibv_destroy_qp(pair);
    if (completions != nullptr) functions().ibv_destroy_cq(completions);
  }
};

}  // namespace detail

namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr unsigned kDepth = 16;  // work requests under way

Result<ibv_port_attr> port_attributes(const detail::Context& context, unsigned number) {
  ibv_port_attr attributes{};
  // The exported function fills the members that all versions share, which is how the header itself calls it.
  const int result = functions().ibv_query_port(context.device, static_cast<std::uint8_t>(number),
                                                reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (result != 0) return failed("ibv_query_port", text(context.name, " port ", number), code_of(result));
  return attributes;
}

Result<void> make_pair(detail::LoopState& loop) {
  const std::string& name = loop.context->name;
  errno = 0;
  loop.completions = functions().ibv_create_cq(loop.context->device, static_cast<int>(kDepth), nullptr, nullptr, 0);
  if (loop.completions == nullptr) return failed("ibv_create_cq", name, errno);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = loop.completions;
  wanted.recv_cq = loop.completions;
  wanted.cap = {kDepth, 1, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  errno = 0;
  loop.pair = functions().ibv_create_qp(loop.context->domain, &wanted);
  if (loop.pair == nullptr) return failed("ibv_create_qp", name, errno);
  return {};
}

Result<void> connect_to_itself(const detail::LoopState& loop, const ibv_port_attr& port, unsigned number, int gid_index) {
  const std::string object = text(loop.context->name, " port ", number);
  PairPath path;
  path.port = static_cast<std::uint8_t>(number);
  path.mtu = port.active_mtu;
  path.peer_pair = loop.pair->qp_num;
  path.peer_lid = port.lid;
  path.is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  path.gid_index = static_cast<std::uint8_t>(gid_index);
  path.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (path.is_ethernet) {
    const int result = functions().ibv_query_gid(loop.context->device, path.port, gid_index, &path.peer_gid);
    if (result != 0) return failed("ibv_query_gid", text(object, " GID ", gid_index), code_of(result));
  }
  const PairFailure failure = connect_pair(loop.pair, path);
  if (failure.call != nullptr) return failed(failure.call, text(object, " GID ", gid_index), failure.code);
  return {};
}

struct Work {
  ibv_wr_opcode operation;
  const detail::RegionState& local;
  const detail::RegionState& remote;
  std::size_t bytes;
};

int post(const detail::LoopState& loop, const Work& work) {
  ibv_sge piece{};
  piece.addr = work.local.address;
  piece.length = static_cast<std::uint32_t>(work.bytes);
  piece.lkey = work.local.region->lkey;
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = work.operation;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = work.remote.address;
  request.wr.rdma.rkey = work.remote.region->rkey;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(loop.pair, &request, &refused);
}

// One completion: nothing when none has come yet.
Result<bool> take_completion(const detail::LoopState& loop) {
  ibv_wc completion{};
  const int result = ibv_poll_cq(loop.completions, 1, &completion);
  if (result < 0) return failed("ibv_poll_cq", loop.context->name, code_of(result));
  if (result == 0) return false;
  if (completion.status == IBV_WC_SUCCESS) return true;
  return make_error(Status::device_error, "loop", loop.context->name, functions().ibv_wc_status_str(completion.status), {},
                    {NativeDomain::none, completion.status,
                     text("completion status ", static_cast<int>(completion.status), ", vendor error ", completion.vendor_err)});
}

Result<void> run(detail::LoopState& loop, const Work& work, unsigned count, std::int64_t deadline_ns) {
  const std::string& name = loop.context->name;
  if (work.bytes > work.local.bytes || work.bytes > work.remote.bytes)
    return make_error(Status::out_of_range, "loop", name, text(counted(work.bytes, "byte"), " are more than a region has"));
  if (loop.is_broken) return make_error(Status::device_error, "loop", name, "an earlier transfer failed", "connect a new loop");
  loop.is_broken = true;  // until all of it has come back
  unsigned posted = 0, done = 0;
  while (done < count) {
    if (posted < count && posted - done < kDepth) {
      if (const int result = post(loop, work); result != 0) return failed("ibv_post_send", name, code_of(result));
      ++posted;
      continue;
    }
    const auto is_one_done = take_completion(loop);
    if (!is_one_done) return is_one_done.error();
    done += *is_one_done ? 1 : 0;
    if (!*is_one_done && now_ns() >= deadline_ns)
      return make_error(Status::timed_out, "loop", name,
                        text(done, " of ", counted(count, "transfer"), " had completed at the deadline"));
  }
  loop.is_broken = false;
  return {};
}

}  // namespace

int code_of(int result) noexcept {
  if (result > 0) return result;
  return result < -1 ? -result : errno;
}

std::optional<bool> has_dmabuf() {
  if (!availability().is_ok()) return {};
  return functions().ibv_reg_dmabuf_mr != nullptr;
}

Result<std::vector<std::string>> device_names() {
  if (!availability().is_ok()) return make_error("list RDMA devices", "libibverbs", availability());
  const DeviceList list;
  if (!list.is_there()) return no_list("libibverbs", list.error());
  std::vector<std::string> names;
  for (int index = 0; index < std::min(list.count(), kMaxDevices); ++index) names.push_back(list.name(index));
  return names;
}

std::uint64_t Region::address() const noexcept { return state_->address; }
std::size_t Region::bytes() const noexcept { return state_->bytes; }

Result<Device> Device::open(const std::string& name) {
  if (!availability().is_ok()) return make_error("open RDMA device", name, availability());
  const DeviceList list;
  if (!list.is_there()) return no_list(name, list.error());
  auto context = std::make_shared<detail::Context>();
  context->name = name;
  int index = 0;
  const int count = std::min(list.count(), kMaxDevices);
  while (index < count && list.name(index) != name) ++index;
  if (index == count)
    return make_error(Status::unavailable, "open RDMA device", name, "libibverbs does not list it",
                      "install the device's provider library of rdma-core (package ibverbs-providers)");
  errno = 0;
  context->device = functions().ibv_open_device(list.at(index));
  if (context->device == nullptr) return failed("ibv_open_device", name, errno);
  if (const int result = functions().ibv_query_device(context->device, &context->attributes); result != 0)
    return failed("ibv_query_device", name, code_of(result));
  errno = 0;
  context->domain = functions().ibv_alloc_pd(context->device);
  if (context->domain == nullptr) return failed("ibv_alloc_pd", name, errno);
  return Device(std::move(context));
}

const std::string& Device::name() const noexcept { return context_->name; }

Transport Device::transport() const noexcept {
  switch (context_->device->device->transport_type) {
    case IBV_TRANSPORT_IB: return Transport::infiniband;
    case IBV_TRANSPORT_IWARP: return Transport::iwarp;
    default: return Transport::other;
  }
}

unsigned Device::port_count() const noexcept { return context_->attributes.phys_port_cnt; }

Result<Port> Device::port(unsigned number) const {
  const auto attributes = port_attributes(*context_, number);
  if (!attributes) return attributes.error();
  Port port;
  port.is_active = attributes->state == IBV_PORT_ACTIVE;
  port.is_ethernet = attributes->link_layer == IBV_LINK_LAYER_ETHERNET;
  port.active_mtu_bytes = bytes_of(attributes->active_mtu);
  port.lid = attributes->lid;
  return port;
}

Result<Region> Device::register_memory(void* address, std::size_t bytes) const {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  auto state = std::make_shared<detail::RegionState>(context_, first, bytes);
  errno = 0;
  state->region = functions().ibv_reg_mr(context_->domain, address, bytes, kAccess);
  if (state->region == nullptr) return failed("ibv_reg_mr", text(range_text(first, bytes), " on ", name()), errno);
  return Region(std::move(state));
}

Result<Region> Device::register_dma_buf(int descriptor, std::size_t bytes, std::uint64_t iova) const {
  if (functions().ibv_reg_dmabuf_mr == nullptr)
    return make_error(Status::not_supported, "ibv_reg_dmabuf_mr", name(), "libibverbs has no ibv_reg_dmabuf_mr",
                      "install rdma-core 34 or newer");
  auto state = std::make_shared<detail::RegionState>(context_, iova, bytes);
  errno = 0;
  state->region = functions().ibv_reg_dmabuf_mr(context_->domain, 0, bytes, iova, descriptor, kAccess);
  if (state->region == nullptr)
    return failed("ibv_reg_dmabuf_mr", text("dma-buf of ", counted(bytes, "byte"), " on ", name()), errno);
  return Region(std::move(state));
}

Result<Loop> Loop::connect(const Device& device, unsigned port, int gid_index) {
  const std::string object = text(device.name(), " port ", port);
  if (device.transport() == Transport::iwarp)
    return make_error(Status::not_supported, "loop", object, "iWARP connects through the RDMA connection manager only");
  const auto attributes = port_attributes(*device.context_, port);
  if (!attributes) return attributes.error();
  if (attributes->state != IBV_PORT_ACTIVE)
    return make_error(Status::unavailable, "loop", object, "the port is not active", "bring the link up ('rdma link' shows it)");
  auto state = std::make_shared<detail::LoopState>(device.context_);
  if (Result<void> made = make_pair(*state); !made) return std::move(made).error();
  if (Result<void> connected = connect_to_itself(*state, *attributes, port, gid_index); !connected)
    return std::move(connected).error();
  return Loop(std::move(state));
}

Result<void> Loop::write(const Region& source, const Region& destination, std::size_t bytes, unsigned count,
                         std::int64_t deadline_ns) {
  return run(*state_, {IBV_WR_RDMA_WRITE, *source.state_, *destination.state_, bytes}, count, deadline_ns);
}

Result<void> Loop::read(const Region& destination, const Region& source, std::size_t bytes, unsigned count,
                        std::int64_t deadline_ns) {
  return run(*state_, {IBV_WR_RDMA_READ, *destination.state_, *source.state_, bytes}, count, deadline_ns);
}

#else

namespace detail {
struct Context {
  std::string name;
};
}  // namespace detail

const Availability& availability() {
  static const Availability absent =
      not_built("RDMA", "configure with infiniband/verbs.h (package libibverbs-dev or rdma-core-devel)");
  return absent;
}

std::optional<bool> has_dmabuf() { return {}; }
Result<std::vector<std::string>> device_names() { return make_error("list RDMA devices", "libibverbs", availability()); }

// No object of these classes is ever made in such a build.
std::uint64_t Region::address() const noexcept { return 0; }
std::size_t Region::bytes() const noexcept { return 0; }
Result<Device> Device::open(const std::string& name) { return make_error("open RDMA device", name, availability()); }
const std::string& Device::name() const noexcept { return context_->name; }
Transport Device::transport() const noexcept { return Transport::other; }
unsigned Device::port_count() const noexcept { return 0; }
Result<Port> Device::port(unsigned) const { return make_error("query port", name(), availability()); }
Result<Region> Device::register_memory(void*, std::size_t) const { return make_error("register", name(), availability()); }
Result<Region> Device::register_dma_buf(int, std::size_t, std::uint64_t) const {
  return make_error("register", name(), availability());
}
Result<Loop> Loop::connect(const Device& device, unsigned, int) { return make_error("loop", device.name(), availability()); }
Result<void> Loop::write(const Region&, const Region&, std::size_t, unsigned, std::int64_t) {
  return make_error("loop", "libibverbs", availability());
}
Result<void> Loop::read(const Region&, const Region&, std::size_t, unsigned, std::int64_t) {
  return make_error("loop", "libibverbs", availability());
}

#endif

}  // namespace gigabar::verbs
