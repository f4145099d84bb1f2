// SPDX-License-Identifier: Apache-2.0
#include "device/hca/hca.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/options.hpp"
#include "base/quietly.hpp"
#include "base/ranges.hpp"
#include "driver/verbs/functions.hpp"
#include "driver/verbs/verbs.hpp"
#include "gigabar/copy.hpp"
#include "rdma/rail_order.hpp"

namespace gigabar::hca {
#if GIGABAR_HAS_MLX5DV && GIGABAR_HAS_RDMACM
namespace {

using device::Sharing;
using rdma::call_failed;
using verbs::code_of;

// No relaxed ordering: a notification must come behind the bytes that were written before it.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::uint8_t kMaxReads = 16;  // of a queue under way; what the adapters allow, but no more

// "mlx5_0/1" in its parts; port 0: any.
struct PortName {
  std::string device;
  unsigned port = 0;
};
Result<PortName> parse(const std::string& name) {
  const std::size_t slash = name.find('/');
  PortName parsed{name.substr(0, slash), 0};
  if (slash == std::string::npos) return parsed;
  const auto number = name.size() - slash <= 4 ? parse_number(name.substr(slash + 1), 1, 255) : std::nullopt;
  if (parsed.device.empty() || !number)
    return make_error(Status::invalid_argument, "open HCA", text("port '", name, "'"),
                      "it is neither a device nor a device and a port",
                      "write 'mlx5_0' or 'mlx5_0/1'; 'gigabar topology' lists them");
  parsed.port = static_cast<unsigned>(*number);
  return parsed;
}

// -1: the port has none of RoCE version 2 that routers know.
int find_gid(const Topology* topology, const std::string& device, unsigned number) {
  if (topology == nullptr) return -1;
  for (const Nic& nic : topology->nics) {
    for (const RdmaPort& port : nic.ports) {
      if (nic.rdma_device != device || port.number != static_cast<int>(number)) continue;
      const GidEntry* const found = rdma::first_gid_v2(port.gids, rdma::GidReach::routed);
      return found == nullptr ? -1 : found->index;
    }
  }
  return -1;
}

Result<Runtime*> runtime_for(int device) {
  auto runtime = active_runtime();
  if (!runtime) return std::move(runtime).error();
  const auto traits = (*runtime)->traits(device);
  if (!traits) return traits.error();
  if (!traits->orders_nic_writes)
    return make_error(Status::not_supported, "open HCA", text("device ", device),
                      "its kernels may see a NIC's writes in another order than that in which they came", "use the software HCA");
  return *runtime;
}

// Of queues.
constexpr std::size_t kLine = 128;
// The longest request that libmlx5 makes room for has three blocks; ours have one.
constexpr std::uint32_t kBlocksPerRequest = 3;

ibv_cq* make_cq(ibv_context* context, ibv_pd* parent, std::uint32_t depth, bool ignores_overrun) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = depth;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attributes.parent_domain = parent;
  if (ignores_overrun) {
    attributes.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  }
  errno = 0;
  ibv_cq_ex* const made = ibv_create_cq_ex(context, &attributes);
  return made == nullptr ? nullptr : ibv_cq_ex_to_cq(made);
}

}  // namespace

// --- Memory ----------------------------------------------------------------------------------------------------------------------

Hca::~Hca() {
  regions_.clear();
  const auto& functions = verbs::functions();
  if (parent_ != nullptr) functions.ibv_dealloc_pd(parent_);
  if (domain_ != nullptr) functions.ibv_dealloc_pd(domain_);
  if (context_ != nullptr) functions.ibv_close_device(context_);
}

// Pinned memory has the same address for kernels. What is asked for is never aligned to more than a page.
void* Hca::allocate(ibv_pd*, void* hca, std::size_t bytes, std::size_t, std::uint64_t) noexcept {
  void* address = nullptr;
  quietly([&] {
    auto memory = HostMemory::allocate(std::max<std::size_t>(bytes, 1));
    if (!memory) return;
    void* const place = memory->address();
    static_cast<Hca*>(hca)->blocks_.emplace(reinterpret_cast<std::uintptr_t>(place), std::move(*memory));
    address = place;
  });
  if (address == nullptr) errno = ENOMEM;
  return address;
}

void Hca::release(ibv_pd*, void* hca, void* place, std::uint64_t) noexcept {
  static_cast<Hca*>(hca)->blocks_.erase(reinterpret_cast<std::uintptr_t>(place));
}

bool Hca::is_ours(const void* place, std::size_t bytes) const noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(place);
  auto block = blocks_.upper_bound(first);
  if (block == blocks_.begin()) return false;
  --block;
  return fits(first - block->first, bytes, block->second.bytes());
}

Result<std::shared_ptr<std::uint64_t>> Hca::map_register(void* place) {
  const auto page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(place) % page_bytes;
  std::byte* const first = static_cast<std::byte*>(place) - offset;
  std::weak_ptr<std::byte>& known = pages_[first];
  std::shared_ptr<std::byte> page = known.lock();
  if (page == nullptr) {
    auto mapped = runtime_->map_registers(device_, first, page_bytes);
    if (!mapped) return std::move(mapped).error();
    const auto unmap = [runtime = runtime_, device = device_, first, page_bytes](std::byte*) {
      quietly([&] { static_cast<void>(runtime->unmap_registers(device, first, page_bytes)); });
    };
    known = page = {static_cast<std::byte*>(*mapped), unmap};
  }
  return std::shared_ptr<std::uint64_t>(page, reinterpret_cast<std::uint64_t*>(page.get() + offset));
}

Result<void> Hca::make_domains() {
  errno = 0;
  domain_ = verbs::functions().ibv_alloc_pd(context_);
  if (domain_ == nullptr) return call_failed("ibv_alloc_pd", name_, errno);
  ibv_parent_domain_init_attr attributes{};
  attributes.pd = domain_;
  attributes.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  attributes.alloc = allocate;
  attributes.free = release;
  attributes.pd_context = this;
  errno = 0;
  parent_ = ibv_alloc_parent_domain(context_, &attributes);
  if (parent_ == nullptr) return call_failed("ibv_alloc_parent_domain", name_, errno, "install rdma-core 31 or newer");
  return {};
}

// --- Opening ---------------------------------------------------------------------------------------------------------------------

Result<void> Hca::open_device(ibv_device* device, ibv_device_attr& attributes) {
  const auto& functions = verbs::functions();
  if (!mlx5dv::functions().mlx5dv_is_supported(device))
    return make_error(Status::unavailable, "open HCA", name_, "it is no adapter of mlx5");
  errno = 0;
  context_ = functions.ibv_open_device(device);
  if (context_ == nullptr) return call_failed("ibv_open_device", name_, errno);
  if (const int result = functions.ibv_query_device(context_, &attributes); result != 0)
    return call_failed("ibv_query_device", name_, code_of(result));
  if (attributes.atomic_cap == IBV_ATOMIC_NONE)
    return make_error(Status::not_supported, "open HCA", name_, "the adapter has no atomics in the processor's byte order");
  return {};
}

// Fills what is told of the port, or says why it cannot be used.
Result<void> Hca::use_port(const ibv_device_attr& attributes, unsigned number, int gid_index) {
  const auto& functions = verbs::functions();
  ibv_port_attr port{};
  const int queried =
      functions.ibv_query_port(context_, static_cast<std::uint8_t>(number), reinterpret_cast<_compat_ibv_port_attr*>(&port));
  if (queried != 0) return call_failed("ibv_query_port", name_, code_of(queried));
  if (port.state != IBV_PORT_ACTIVE)
    return make_error(Status::unavailable, "open HCA", name_, "the port is not active", "bring the link up ('rdma link' shows it)");
  port_ = static_cast<std::uint8_t>(number);
  address_.lid = port.lid;
  address_.mtu = static_cast<std::uint8_t>(port.active_mtu);
  address_.is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 1 : 0;
  address_.reads = static_cast<std::uint32_t>(
      std::clamp(std::min(attributes.max_qp_rd_atom, attributes.max_qp_init_rd_atom), 0, static_cast<int>(kMaxReads)));
  if (address_.is_ethernet == 0) return {};
  if (gid_index < 0 || gid_index > 255)
    return make_error(Status::unavailable, "open HCA", name_, "the port has no address of RoCE version 2 that routers know",
                      "give its network device an IP address, or name a GID index ('gigabar doctor' shows them: rdma.gid)");
  ibv_gid gid{};
  if (const int result = functions.ibv_query_gid(context_, port_, gid_index, &gid); result != 0)
    return call_failed("ibv_query_gid", text(name_, " GID ", gid_index), code_of(result));
  gid_index_ = static_cast<std::uint8_t>(gid_index);
  std::memcpy(address_.gid.data(), gid.raw, sizeof gid.raw);
  return {};
}

// The first active port of the device, or that of `number`.
Result<void> Hca::use_some_port(const ibv_device_attr& attributes, unsigned number, const Topology* topology, int gid_index) {
  const std::string device = name_;
  Result<void> used =
      make_error(Status::unavailable, "open HCA", device, text("it has ", counted(attributes.phys_port_cnt, "port")));
  for (unsigned port = 1; port <= attributes.phys_port_cnt; ++port) {
    if (number != 0 && port != number) continue;
    name_ = text(device, "/", port);
    used = use_port(attributes, port, gid_index >= 0 ? gid_index : find_gid(topology, device, port));
    if (used) return used;
  }
  return used;
}

Result<std::unique_ptr<Hca>> Hca::open(const HcaOptions& options) {
  for (const Availability* need : {&verbs::availability(), &mlx5dv::availability()}) {
    if (!need->is_ok()) return make_error("open HCA", options.port, *need);
  }
  const bool is_named = !options.port.empty();
  auto wanted = is_named ? parse(options.port) : Result<PortName>(PortName{});
  if (!wanted) return std::move(wanted).error();
  auto runtime = runtime_for(options.device);
  if (!runtime) return std::move(runtime).error();
  const verbs::DeviceList list;
  std::vector<std::string> names;
  for (int index = 0; index < list.count(); ++index) names.push_back(list.name(index));
  const auto topology = discover_topology(Machine::here());
  const Topology empty;
  std::string reasons;
  for (const std::size_t index : rdma::nearest_first(topology ? *topology : empty, options.device, names, options.local_rank)) {
    if (is_named && names[index] != wanted->device) continue;
    std::unique_ptr<Hca> hca(new Hca(names[index], options, *runtime));
    ibv_device_attr attributes{};
    Result<void> opened = hca->open_device(list.at(static_cast<int>(index)), attributes);
    if (opened) opened = hca->use_some_port(attributes, wanted->port, topology ? &*topology : nullptr, options.gid_index);
    if (opened) opened = hca->make_domains();
    if (opened) return hca;
    reasons += text(reasons.empty() ? "" : "; ", hca->name_, ": ", opened.record().cause);
  }
  if (reasons.empty()) reasons = is_named ? "libibverbs does not list it" : "libibverbs lists no device ('ibv_devices')";
  return make_error(Status::unavailable, "open HCA", is_named ? options.port : "RDMA devices", std::move(reasons),
                    "an adapter of mlx5 (ConnectX, BlueField) with an active port is needed");
}

Result<MemoryKeys> Hca::register_memory(void* address, std::size_t bytes) {
  const auto info = describe(address);
  if (!info) return info.error();
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  rdma::Mr region;
  if (rdma::is_gpu_memory(info->kind) && info->kind != MemoryKind::stand_in) {
    auto registered = rdma::register_gpu_memory(domain_, name_, first, bytes, kAccess);
    if (!registered) return std::move(registered).error();
    region = std::move(registered->region);
  } else {
    errno = 0;
    region.reset(verbs::functions().ibv_reg_mr(domain_, address, bytes, kAccess));
    if (region == nullptr) return call_failed("ibv_reg_mr", text(range_text(first, bytes), " on ", name_), errno);
  }
  const MemoryKeys keys{region->lkey, region->rkey};
  regions_.push_back(std::move(region));
  return keys;
}

// --- Queues ----------------------------------------------------------------------------------------------------------------------

HcaQueue::~HcaQueue() {
  register_for_kernels_.reset();  // before libmlx5 gives the register back
  if (pair_ != nullptr) verbs::functions().ibv_destroy_qp(pair_);
  if (completions_ != nullptr) verbs::functions().ibv_destroy_cq(completions_);
}

Result<void> HcaQueue::make_pair(std::uint32_t depth) {
  completions_ = make_cq(hca_.context_, hca_.parent_, depth, true);
  if (completions_ == nullptr && (errno == EOPNOTSUPP || errno == EINVAL)) {
    ignores_overrun_ = false;
    completions_ = make_cq(hca_.context_, hca_.parent_, depth, false);
  }
  if (completions_ == nullptr) return failed("ibv_create_cq_ex", errno);
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = completions_;
  wanted.cap = {std::max(1U, depth / kBlocksPerRequest), 0, 1, 0, device::mlx5::kMaxInlineBytes};
  wanted.qp_type = IBV_QPT_RC;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = hca_.parent_;
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  mlx5.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;  // short reads land in memory, not in CQEs
  errno = 0;
  pair_ = mlx5dv::functions().mlx5dv_create_qp(hca_.context_, &wanted, &mlx5);
  if (pair_ == nullptr) return failed("mlx5dv_create_qp", errno);
  return {};
}

// Takes over what libmlx5 made, which it does not touch again unless somebody posts or polls by verbs.
Result<void> HcaQueue::find_memory() {
  mlx5dv_qp send{};
  mlx5dv_cq cq{};
  mlx5dv_obj objects{};
  objects.qp = {pair_, &send};
  objects.cq = {completions_, &cq};
  if (const int result = mlx5dv::functions().mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ); result != 0)
    return failed("mlx5dv_init_obj", verbs::code_of(result));
  const auto unlike = [&](std::string cause) {
    return make_error(Status::not_supported, "make queue", hca_.name_, std::move(cause), "use the software HCA");
  };
  if (send.sq.stride != device::mlx5::kBlockBytes || !std::has_single_bit(send.sq.wqe_cnt) || send.sq.wqe_cnt > device::kMaxDepth)
    return unlike(text("its ring has ", counted(send.sq.wqe_cnt, "slot"), " of ", counted(send.sq.stride, "byte")));
  if (cq.cqe_size != sizeof(device::mlx5::Cqe) || !std::has_single_bit(cq.cqe_cnt) || cq.cqe_cnt < send.sq.wqe_cnt)
    return unlike(text("its CQ has ", counted(cq.cqe_cnt, "entry", "entries"), " of ", counted(cq.cqe_size, "byte")));
  const std::size_t ring_bytes = std::size_t{send.sq.wqe_cnt} * send.sq.stride, cq_bytes = std::size_t{cq.cqe_cnt} * cq.cqe_size;
  const bool is_ours = hca_.is_ours(send.sq.buf, ring_bytes) && hca_.is_ours(send.dbrec, 8) && hca_.is_ours(cq.buf, cq_bytes) &&
                       hca_.is_ours(cq.dbrec, 8);
  if (!is_ours) return unlike("libmlx5 did not take the memory for its queues that it was given; rdma-core 31 and newer do");
  std::memset(cq.buf, 0xff, cq_bytes);

  device::Queue& made = queue_.queue;
  made.ring = static_cast<device::mlx5::Block*>(send.sq.buf);
  made.doorbell_record = reinterpret_cast<std::uint32_t*>(send.dbrec) + device::mlx5::kSendRecordIndex;
  made.cq = static_cast<device::mlx5::Cqe*>(cq.buf);
  made.cq_record = ignores_overrun_ ? nullptr : reinterpret_cast<std::uint32_t*>(cq.dbrec);
  made.depth = send.sq.wqe_cnt;
  made.cq_depth = cq.cqe_cnt;
  made.number = pair_->qp_num;
  made.confirms_reads = true;  // CQEs go to host memory, data to the GPU's: two ways through PCIe
  register_for_cpu_ = static_cast<std::uint64_t*>(send.bf.reg);
  return {};
}

Result<void> HcaQueue::make_memory() {
  const std::size_t bytes = device::kResultWords * sizeof(std::uint64_t);
  auto made = HostMemory::allocate(kLine + bytes);
  if (!made) return std::move(made).error();
  memory_ = std::move(*made);
  word_ = static_cast<std::uint64_t*>(memory_->address());
  auto* const first = static_cast<std::byte*>(memory_->address()) + kLine;
  errno = 0;
  results_.reset(verbs::functions().ibv_reg_mr(hca_.domain_, first, bytes, IBV_ACCESS_LOCAL_WRITE));
  if (results_ == nullptr) return failed("ibv_reg_mr", errno);
  queue_.results = {reinterpret_cast<std::uintptr_t>(first), results_->lkey};
  return {};
}

Result<void> HcaQueue::place_doorbell() {
  queue_.queue.doorbell = word_;
  if (hca_.ringer_ == Ringer::cpu) return {};
  auto mapped = hca_.map_register(register_for_cpu_);
  if (mapped) {
    register_for_kernels_ = std::move(*mapped);
    queue_.queue.doorbell = register_for_kernels_.get();
    return {};
  }
  if (hca_.ringer_) return std::move(mapped).error();
  why_cpu_ = mapped.error().message();
  return {};
}

Result<std::unique_ptr<HcaQueue>> HcaQueue::create(Hca& hca, std::uint32_t depth) {
  std::unique_ptr<HcaQueue> queue(new HcaQueue(hca));
  if (Result<void> made = queue->make_pair(depth); !made) return std::move(made).error();
  if (Result<void> found = queue->find_memory(); !found) return std::move(found).error();
  if (Result<void> made = queue->make_memory(); !made) return std::move(made).error();
  if (Result<void> placed = queue->place_doorbell(); !placed) return std::move(placed).error();
  return queue;
}

Result<void> HcaQueue::connect(const PortAddress& peer, std::uint32_t peer_number) {
  const PortAddress& own = hca_.address_;
  if (own.is_ethernet != peer.is_ethernet)
    return make_error(Status::not_supported, "connect queue", hca_.name_, "one port is of Ethernet and one of InfiniBand");
  verbs::PairPath path;
  path.port = hca_.port_;
  path.mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.mtu));
  path.peer_pair = peer_number;
  path.peer_lid = peer.lid;
  path.is_ethernet = own.is_ethernet != 0;
  std::memcpy(path.peer_gid.raw, peer.gid.data(), peer.gid.size());
  path.gid_index = hca_.gid_index_;
  path.reads = static_cast<std::uint8_t>(std::min(own.reads, peer.reads));
  path.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const verbs::PairFailure failure = verbs::connect_pair(pair_, path);
  if (failure.call != nullptr) return failed(failure.call, failure.code);
  return {};
}

Result<void> HcaQueue::try_out(device::Remote word, std::int64_t timeout_ns) {
  device::Queue& queue = queue_.queue;
  std::uint64_t* const for_kernels = queue.doorbell;
  if (ringer() == Ringer::kernel) queue.doorbell = register_for_cpu_;
  auto* const result = reinterpret_cast<volatile std::uint64_t*>(queue_.results.address);
  *result = ~std::uint64_t{0};
  const device::Timeout timeout{static_cast<std::uint64_t>(std::max<std::int64_t>(timeout_ns, 0))};
  device::Ticket ticket;
  Status status = device::post_fetch_add<Sharing::exclusive>(device::Thread{}, queue, word, 0, queue_.results, ticket, timeout);
  if (status == Status::ok) {
    gigabar::detail::fence_stores();  // the register is behind a buffer that combines writes
    ring();
    status = device::wait<Sharing::exclusive>(device::Thread{}, queue, ticket, timeout);
  }
  queue.doorbell = for_kernels;
  const auto refuse = [&](Status with, std::string cause) {
    return make_error(with, "try queue", hca_.name_, std::move(cause), "use the software HCA");
  };
  if (status == Status::timed_out) return refuse(status, "an atomic on the peer's memory did not come back in time");
  if (status != Status::ok) {
    const device::QueueError error = device::error_of<Sharing::exclusive>(queue);
    return refuse(status, text("an atomic on the peer's memory failed with syndrome ", static_cast<unsigned>(error.syndrome),
                               ", vendor's ", static_cast<unsigned>(error.vendor_syndrome)));
  }
  if (*result != 0) return refuse(Status::device_error, text("an atomic on a word of 0 brought ", *result));
  return {};
}

bool HcaQueue::ring() noexcept {
  if (ringer() == Ringer::kernel) return false;
  const std::uint64_t value = device::load_acquire(word_);
  if (value == rung_) return false;
  rung_ = value;
  device::store_register(register_for_cpu_, value);
  gigabar::detail::fence_stores();
  return true;
}

#else

Result<std::unique_ptr<Hca>> Hca::open(const HcaOptions& options) {
  return make_error("open HCA", options.port, mlx5dv::availability());
}

#endif

}  // namespace gigabar::hca
