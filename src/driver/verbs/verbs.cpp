// SPDX-License-Identifier: Apache-2.0
#include "driver/verbs/verbs.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/counted.hpp"
#include "base/errors.hpp"
#include "driver/loader.hpp"
#include "driver/verbs/functions.hpp"

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

unsigned bytes_of(ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128U << mtu : 0; }

// What a pair is told on its way; each step takes what its mask names.
ibv_qp_attr attributes_of(const PairPath& path) {
  ibv_qp_attr attributes{};
  attributes.port_num = attributes.ah_attr.port_num = path.port;
  attributes.qp_access_flags = static_cast<unsigned>(path.access);
  attributes.path_mtu = path.mtu;
  attributes.dest_qp_num = path.peer_pair;
  attributes.max_dest_rd_atomic = attributes.max_rd_atomic = path.reads;
  attributes.min_rnr_timer = 12;  // 0.64 ms; nothing is received here
  attributes.timeout = 14;        // 67 ms, seven times
  attributes.retry_cnt = attributes.rnr_retry = 7;
  attributes.ah_attr.dlid = path.peer_lid;
  if (path.is_ethernet) {
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.grh.dgid = path.peer_gid;
    attributes.ah_attr.grh.sgid_index = path.gid_index;
    attributes.ah_attr.grh.hop_limit = 64;
  }
  return attributes;
}

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr unsigned kDepth = 16;  // work requests under way

// What a function of libibverbs made, null with errno set where it failed. `destroy` is called at the end, and `owner`, of which it
// was made, let go of behind it.
template <class Object>
std::shared_ptr<Object> owned(Object* made, int (*destroy)(Object*), std::shared_ptr<const void> owner) {
  if (made == nullptr) return nullptr;
  return {made, [destroy, kept = std::move(owner)](Object* object) { destroy(object); }};
}

Result<ibv_port_attr> port_attributes(ibv_context* device, const std::string& name, unsigned number) {
  ibv_port_attr attributes{};
  // The exported function fills the members that all versions share, which is how the header itself calls it.
  const int result =
      functions().ibv_query_port(device, static_cast<std::uint8_t>(number), reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (result != 0) return failed("ibv_query_port", text(name, " port ", number), code_of(result));
  return attributes;
}

Result<void> connect_to_itself(ibv_context* device, ibv_qp* pair, const ibv_port_attr& port, unsigned number, int gid_index,
                               const std::string& object) {
  PairPath path;
  path.port = static_cast<std::uint8_t>(number);
  path.mtu = port.active_mtu;
  path.peer_pair = pair->qp_num;
  path.peer_lid = port.lid;
  path.is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  path.gid_index = static_cast<std::uint8_t>(gid_index);
  path.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  if (path.is_ethernet) {
    const int result = functions().ibv_query_gid(device, path.port, gid_index, &path.peer_gid);
    if (result != 0) return failed("ibv_query_gid", text(object, " GID ", gid_index), code_of(result));
  }
  const PairFailure failure = connect_pair(pair, path);
  if (failure.call != nullptr) return failed(failure.call, text(object, " GID ", gid_index), failure.code);
  return {};
}

// One completion: nothing when none has come yet.
Result<bool> take_completion(ibv_cq* completions, const std::string& name) {
  ibv_wc completion{};
  const int result = ibv_poll_cq(completions, 1, &completion);
  if (result < 0) return failed("ibv_poll_cq", name, code_of(result));
  if (result == 0) return false;
  if (completion.status == IBV_WC_SUCCESS) return true;
  return make_error(Status::device_error, "loop", name, functions().ibv_wc_status_str(completion.status), {},
                    {NativeDomain::none, completion.status,
                     text("completion status ", static_cast<int>(completion.status), ", vendor error ", completion.vendor_err)});
}

}  // namespace

int code_of(int result) noexcept {
  if (result > 0) return result;
  return result < -1 ? -result : errno;
}

PairFailure connect_pair(ibv_qp* pair, const PairPath& path) {
  struct Step {
    const char* call;
    ibv_qp_state state;
    int mask;
  };
  constexpr std::array<Step, 3> kSteps{
      {{"ibv_modify_qp(INIT)", IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
       {"ibv_modify_qp(RTR)", IBV_QPS_RTR,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER},
       {"ibv_modify_qp(RTS)", IBV_QPS_RTS,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC}}};
  ibv_qp_attr attributes = attributes_of(path);
  for (const Step& step : kSteps) {
    attributes.qp_state = step.state;
    if (const int result = functions().ibv_modify_qp(pair, &attributes, step.mask); result != 0)
      return {step.call, code_of(result)};
  }
  return {};
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

Result<Device> Device::open(const std::string& name) {
  if (!availability().is_ok()) return make_error("open RDMA device", name, availability());
  const DeviceList list;
  if (!list.is_there()) return no_list(name, list.error());
  Device device;
  device.name_ = name;
  int index = 0;
  const int count = std::min(list.count(), kMaxDevices);
  while (index < count && list.name(index) != name) ++index;
  if (index == count)
    return make_error(Status::unavailable, "open RDMA device", name, "libibverbs does not list it",
                      "install the device's provider library of rdma-core (package ibverbs-providers)");
  errno = 0;
  device.context_ = owned(functions().ibv_open_device(list.at(index)), functions().ibv_close_device, nullptr);
  if (device.context_ == nullptr) return failed("ibv_open_device", name, errno);
  ibv_device_attr attributes{};
  if (const int result = functions().ibv_query_device(device.context_.get(), &attributes); result != 0)
    return failed("ibv_query_device", name, code_of(result));
  device.port_count_ = attributes.phys_port_cnt;
  const auto transport = device.context_->device->transport_type;
  if (transport == IBV_TRANSPORT_IB) device.transport_ = Transport::infiniband;
  if (transport == IBV_TRANSPORT_IWARP) device.transport_ = Transport::iwarp;
  errno = 0;
  device.domain_ = owned(functions().ibv_alloc_pd(device.context_.get()), functions().ibv_dealloc_pd, device.context_);
  if (device.domain_ == nullptr) return failed("ibv_alloc_pd", name, errno);
  return device;
}

Result<Port> Device::port(unsigned number) const {
  const auto attributes = port_attributes(context_.get(), name_, number);
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
  errno = 0;
  auto region = owned(functions().ibv_reg_mr(domain_.get(), address, bytes, kAccess), functions().ibv_dereg_mr, domain_);
  if (region == nullptr) return failed("ibv_reg_mr", text(range_text(first, bytes), " on ", name_), errno);
  return Region(std::move(region), first, bytes);
}

Result<Region> Device::register_dma_buf(int descriptor, std::size_t bytes, std::uint64_t iova) const {
  if (functions().ibv_reg_dmabuf_mr == nullptr)
    return make_error(Status::not_supported, "ibv_reg_dmabuf_mr", name_, "libibverbs has no ibv_reg_dmabuf_mr",
                      "install rdma-core 34 or newer");
  errno = 0;
  auto region =
      owned(functions().ibv_reg_dmabuf_mr(domain_.get(), 0, bytes, iova, descriptor, kAccess), functions().ibv_dereg_mr, domain_);
  if (region == nullptr) return failed("ibv_reg_dmabuf_mr", text("dma-buf of ", counted(bytes, "byte"), " on ", name_), errno);
  return Region(std::move(region), iova, bytes);
}

Result<Loop> Loop::connect(const Device& device, unsigned port, int gid_index) {
  const std::string& name = device.name_;
  const std::string object = text(name, " port ", port);
  if (device.transport_ == Transport::iwarp)
    return make_error(Status::not_supported, "loop", object, "iWARP connects through the RDMA connection manager only");
  ibv_context* const context = device.context_.get();
  const auto attributes = port_attributes(context, name, port);
  if (!attributes) return attributes.error();
  if (attributes->state != IBV_PORT_ACTIVE)
    return make_error(Status::unavailable, "loop", object, "the port is not active", "bring the link up ('rdma link' shows it)");
  Loop loop(name);
  errno = 0;
  loop.completions_ = owned(functions().ibv_create_cq(context, static_cast<int>(kDepth), nullptr, nullptr, 0),
                            functions().ibv_destroy_cq, device.domain_);
  if (loop.completions_ == nullptr) return failed("ibv_create_cq", name, errno);
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = loop.completions_.get();
  wanted.cap = {kDepth, 1, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  errno = 0;
  loop.pair_ = owned(functions().ibv_create_qp(device.domain_.get(), &wanted), functions().ibv_destroy_qp, loop.completions_);
  if (loop.pair_ == nullptr) return failed("ibv_create_qp", name, errno);
  if (Result<void> connected = connect_to_itself(context, loop.pair_.get(), *attributes, port, gid_index, object); !connected)
    return std::move(connected).error();
  return loop;
}

Result<void> Loop::run(bool is_write, const Region& local, const Region& remote, std::size_t bytes, unsigned count,
                       std::int64_t deadline_ns) {
  if (bytes > local.bytes_ || bytes > remote.bytes_)
    return make_error(Status::out_of_range, "loop", name_, text(counted(bytes, "byte"), " are more than a region has"));
  if (is_broken_) return make_error(Status::device_error, "loop", name_, "an earlier transfer failed", "connect a new loop");
  ibv_sge piece{local.address_, static_cast<std::uint32_t>(bytes), local.region_->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote.address_;
  request.wr.rdma.rkey = remote.region_->rkey;
  is_broken_ = true;  // until all of it has come back
  unsigned posted = 0, done = 0;
  while (done < count) {
    if (posted < count && posted - done < kDepth) {
      ibv_send_wr* refused = nullptr;
      if (const int result = ibv_post_send(pair_.get(), &request, &refused); result != 0)
        return failed("ibv_post_send", name_, code_of(result));
      ++posted;
      continue;
    }
    const auto is_one_done = take_completion(completions_.get(), name_);
    if (!is_one_done) return is_one_done.error();
    done += *is_one_done ? 1 : 0;
    if (!*is_one_done && now_ns() >= deadline_ns)
      return make_error(Status::timed_out, "loop", name_,
                        text(done, " of ", counted(count, "transfer"), " had completed at the deadline"));
  }
  is_broken_ = false;
  return {};
}

#else

const Availability& availability() {
  static const Availability absent =
      not_built("RDMA", "configure with infiniband/verbs.h (package libibverbs-dev or rdma-core-devel)");
  return absent;
}

std::optional<bool> has_dmabuf() { return {}; }
Result<std::vector<std::string>> device_names() { return make_error("list RDMA devices", "libibverbs", availability()); }

// No object of these classes is ever made in such a build.
Result<Device> Device::open(const std::string& name) { return make_error("open RDMA device", name, availability()); }
Result<Port> Device::port(unsigned) const { return make_error("query port", name_, availability()); }
Result<Region> Device::register_memory(void*, std::size_t) const { return make_error("register", name_, availability()); }
Result<Region> Device::register_dma_buf(int, std::size_t, std::uint64_t) const {
  return make_error("register", name_, availability());
}
Result<Loop> Loop::connect(const Device& device, unsigned, int) { return make_error("loop", device.name_, availability()); }
Result<void> Loop::run(bool, const Region&, const Region&, std::size_t, unsigned, std::int64_t) {
  return make_error("loop", "libibverbs", availability());
}

#endif

}  // namespace gigabar::verbs
