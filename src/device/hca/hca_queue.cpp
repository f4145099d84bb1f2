// SPDX-License-Identifier: Apache-2.0
#include "device/hca/hca_queue.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "device/hca/hca_state.hpp"
#include "driver/mlx5dv/mlx5dv.hpp"
#include "driver/verbs/functions.hpp"
#include "gigabar/copy.hpp"

namespace gigabar::hca {
#if GIGABAR_HAS_MLX5DV && GIGABAR_HAS_RDMACM
namespace {

using device::Sharing;
using rdma::call_failed;
using verbs::code_of;

constexpr std::size_t kLine = 128;
// The longest request that libmlx5 makes room for has three blocks; ours have one.
constexpr std::uint32_t kBlocksPerRequest = 3;

ibv_cq* make_cq(Hca::State& hca, std::uint32_t depth, bool ignores_overrun) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = depth;
  attributes.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attributes.parent_domain = hca.parent;
  if (ignores_overrun) {
    attributes.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attributes.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  }
  errno = 0;
  ibv_cq_ex* const made = ibv_create_cq_ex(hca.context, &attributes);
  return made == nullptr ? nullptr : ibv_cq_ex_to_cq(made);
}

}  // namespace

struct HcaQueue::State {
  explicit State(Hca::State& owner) : hca(owner) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  Result<void> make_pair(std::uint32_t depth);
  Result<void> find_memory();
  Result<void> make_memory();
  Result<void> place_doorbell();
  Error failed(const char* call, int code) const { return call_failed(call, hca.name, code); }

  Hca::State& hca;
  std::optional<HostMemory> memory;  // the word that kernels ring for the CPU, on a line of its own, and results
  rdma::Mr results;
  ibv_cq* completions = nullptr;
  ibv_qp* pair = nullptr;
  bool ignores_overrun = true;
  std::uint64_t* register_for_cpu = nullptr;
  bool is_mapped = false;  // the register, for kernels
  Ringer ringer = Ringer::kernel;
  std::string why_cpu;
  std::uint64_t* word = nullptr;
  std::uint64_t rung = 0;  // of `word`
  device::PeerQueue queue;
};

HcaQueue::State::~State() {
  if (is_mapped) hca.unmap_register(register_for_cpu);
  if (pair != nullptr) verbs::functions().ibv_destroy_qp(pair);
  if (completions != nullptr) verbs::functions().ibv_destroy_cq(completions);
}

Result<void> HcaQueue::State::make_pair(std::uint32_t depth) {
  completions = make_cq(hca, depth, true);
  if (completions == nullptr && (errno == EOPNOTSUPP || errno == EINVAL)) {
    ignores_overrun = false;
    completions = make_cq(hca, depth, false);
  }
  if (completions == nullptr) return failed("ibv_create_cq_ex", errno);
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.cap = {std::max(1U, depth / kBlocksPerRequest), 0, 1, 0, device::mlx5::kMaxInlineBytes};
  wanted.qp_type = IBV_QPT_RC;
  wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
  wanted.pd = hca.parent;
  mlx5dv_qp_init_attr mlx5{};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  mlx5.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;  // short reads land in memory, not in CQEs
  errno = 0;
  pair = mlx5dv::functions().mlx5dv_create_qp(hca.context, &wanted, &mlx5);
  if (pair == nullptr) return failed("mlx5dv_create_qp", errno);
  return {};
}

// Takes over what libmlx5 made, which it does not touch again unless somebody posts or polls by verbs.
Result<void> HcaQueue::State::find_memory() {
  mlx5dv_qp send{};
  mlx5dv_cq cq{};
  mlx5dv_obj objects{};
  objects.qp = {pair, &send};
  objects.cq = {completions, &cq};
  if (const int result = mlx5dv::functions().mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ); result != 0)
    return failed("mlx5dv_init_obj", code_of(result));
  const auto unlike = [&](std::string cause) {
    return make_error(Status::not_supported, "make queue", hca.name, std::move(cause), "use the software HCA");
  };
  if (send.sq.stride != device::mlx5::kBlockBytes || !std::has_single_bit(send.sq.wqe_cnt) || send.sq.wqe_cnt > device::kMaxDepth)
    return unlike(text("its ring has ", counted(send.sq.wqe_cnt, "slot"), " of ", counted(send.sq.stride, "byte")));
  if (cq.cqe_size != sizeof(device::mlx5::Cqe) || !std::has_single_bit(cq.cqe_cnt) || cq.cqe_cnt < send.sq.wqe_cnt)
    return unlike(text("its CQ has ", counted(cq.cqe_cnt, "entry", "entries"), " of ", counted(cq.cqe_size, "byte")));
  const std::size_t ring_bytes = std::size_t{send.sq.wqe_cnt} * send.sq.stride, cq_bytes = std::size_t{cq.cqe_cnt} * cq.cqe_size;
  const bool is_ours = hca.is_ours(send.sq.buf, ring_bytes) && hca.is_ours(send.dbrec, 8) && hca.is_ours(cq.buf, cq_bytes) &&
                       hca.is_ours(cq.dbrec, 8);
  if (!is_ours) return unlike("libmlx5 did not take the memory for its queues that it was given; rdma-core 31 and newer do");
  std::memset(cq.buf, 0xff, cq_bytes);

  device::Queue& made = queue.queue;
  made.ring = static_cast<device::mlx5::Block*>(send.sq.buf);
  made.doorbell_record = reinterpret_cast<std::uint32_t*>(send.dbrec) + device::mlx5::kSendRecordIndex;
  made.cq = static_cast<device::mlx5::Cqe*>(cq.buf);
  made.cq_record = ignores_overrun ? nullptr : reinterpret_cast<std::uint32_t*>(cq.dbrec);
  made.depth = send.sq.wqe_cnt;
  made.cq_depth = cq.cqe_cnt;
  made.number = pair->qp_num;
  made.confirms_reads = true;  // CQEs go to host memory, data to the GPU's: two ways through PCIe
  register_for_cpu = static_cast<std::uint64_t*>(send.bf.reg);
  return {};
}

Result<void> HcaQueue::State::make_memory() {
  const std::size_t bytes = device::kResultWords * sizeof(std::uint64_t);
  auto made = HostMemory::allocate(kLine + bytes);
  if (!made) return std::move(made).error();
  memory = std::move(*made);
  word = static_cast<std::uint64_t*>(memory->address());
  auto* const first = static_cast<std::byte*>(memory->address()) + kLine;
  errno = 0;
  results.reset(verbs::functions().ibv_reg_mr(hca.domain, first, bytes, IBV_ACCESS_LOCAL_WRITE));
  if (results == nullptr) return failed("ibv_reg_mr", errno);
  queue.results = {reinterpret_cast<std::uintptr_t>(first), results->lkey};
  return {};
}

Result<void> HcaQueue::State::place_doorbell() {
  ringer = hca.ringer.value_or(Ringer::kernel);
  if (ringer == Ringer::kernel) {
    auto mapped = hca.map_register(register_for_cpu);
    is_mapped = mapped.is_ok();
    if (is_mapped) {
      queue.queue.doorbell = *mapped;
      return {};
    }
    if (hca.ringer) return std::move(mapped).error();
    ringer = Ringer::cpu;
    why_cpu = mapped.error().message();
  }
  queue.queue.doorbell = word;
  return {};
}

Result<std::unique_ptr<HcaQueue>> HcaQueue::create(Hca& hca, std::uint32_t depth) {
  auto state = std::make_unique<State>(hca.state());
  if (Result<void> made = state->make_pair(depth); !made) return std::move(made).error();
  if (Result<void> found = state->find_memory(); !found) return std::move(found).error();
  if (Result<void> made = state->make_memory(); !made) return std::move(made).error();
  if (Result<void> placed = state->place_doorbell(); !placed) return std::move(placed).error();
  return std::unique_ptr<HcaQueue>(new HcaQueue(std::move(state)));
}

std::uint32_t HcaQueue::number() const noexcept { return state_->queue.queue.number; }
Ringer HcaQueue::ringer() const noexcept { return state_->ringer; }

Result<void> HcaQueue::connect(const PortAddress& peer, std::uint32_t peer_number) {
  const PortAddress& own = state_->hca.address;
  if (own.is_ethernet != peer.is_ethernet)
    return make_error(Status::not_supported, "connect queue", state_->hca.name, "one port is of Ethernet and one of InfiniBand");
  verbs::PairPath path;
  path.port = state_->hca.port;
  path.mtu = static_cast<ibv_mtu>(std::min(own.mtu, peer.mtu));
  path.peer_pair = peer_number;
  path.peer_lid = peer.lid;
  path.is_ethernet = own.is_ethernet != 0;
  std::memcpy(path.peer_gid.raw, peer.gid.data(), peer.gid.size());
  path.gid_index = state_->hca.gid_index;
  path.reads = static_cast<std::uint8_t>(std::min(own.reads, peer.reads));
  path.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  const verbs::PairFailure failure = verbs::connect_pair(state_->pair, path);
  if (failure.call != nullptr) return state_->failed(failure.call, failure.code);
  return {};
}

Result<void> HcaQueue::try_out(device::Remote word, std::int64_t timeout_ns) {
  device::Queue& queue = state_->queue.queue;
  std::uint64_t* const for_kernels = queue.doorbell;
  if (state_->ringer == Ringer::kernel) queue.doorbell = state_->register_for_cpu;
  auto* const result = reinterpret_cast<volatile std::uint64_t*>(state_->queue.results.address);
  *result = ~std::uint64_t{0};
  const device::Timeout timeout{static_cast<std::uint64_t>(std::max<std::int64_t>(timeout_ns, 0))};
  device::Ticket ticket;
  Status status =
      device::post_fetch_add<Sharing::exclusive>(device::Thread{}, queue, word, 0, state_->queue.results, ticket, timeout);
  if (status == Status::ok) {
    gigabar::detail::fence_stores();  // the register is behind a buffer that combines writes
    ring();
    status = device::wait<Sharing::exclusive>(device::Thread{}, queue, ticket, timeout);
  }
  queue.doorbell = for_kernels;
  const auto refuse = [&](Status with, std::string cause) {
    return make_error(with, "try queue", state_->hca.name, std::move(cause), "use the software HCA");
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
  if (state_->ringer == Ringer::kernel) return false;
  const std::uint64_t value = device::load_acquire(state_->word);
  if (value == state_->rung) return false;
  state_->rung = value;
  device::store_register(state_->register_for_cpu, value);
  gigabar::detail::fence_stores();
  return true;
}

#else

struct HcaQueue::State {
  device::PeerQueue queue;
  std::string why_cpu;
};

// No object is ever made in such a build.
Result<std::unique_ptr<HcaQueue>> HcaQueue::create(Hca& hca, std::uint32_t) {
  return make_error("make queue", hca.name(), mlx5dv::availability());
}
std::uint32_t HcaQueue::number() const noexcept { return 0; }
Ringer HcaQueue::ringer() const noexcept { return Ringer::cpu; }
Result<void> HcaQueue::connect(const PortAddress&, std::uint32_t) {
  return make_error("connect queue", "", mlx5dv::availability());
}
Result<void> HcaQueue::try_out(device::Remote, std::int64_t) { return make_error("try queue", "", mlx5dv::availability()); }
bool HcaQueue::ring() noexcept { return false; }

#endif

HcaQueue::HcaQueue(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
HcaQueue::~HcaQueue() = default;
const std::string& HcaQueue::why_cpu() const noexcept { return state_->why_cpu; }
device::PeerQueue& HcaQueue::queue() noexcept { return state_->queue; }

}  // namespace gigabar::hca
