// SPDX-License-Identifier: Apache-2.0
#include "device/hca/hca.hpp"

#if GIGABAR_HAS_MLX5DV && GIGABAR_HAS_RDMACM

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "driver/verbs/functions.hpp"
#include "gigabar/copy.hpp"

namespace gigabar::hca {
namespace {

using device::Sharing;

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

}  // namespace gigabar::hca

#endif
