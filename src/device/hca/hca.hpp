// SPDX-License-Identifier: Apache-2.0
// An adapter of mlx5 whose queues kernels use themselves: the device with its port, the memory that its queues lie in, and the
// memory that work requests name. By public verbs only; libmlx5 tells where it keeps what.
//
// Never run on hardware: tests put a software HCA behind the same calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/in_place.hpp"
#include "driver/mlx5dv/mlx5dv.hpp"
#include "gigabar/device/handle.hpp"
#include "gigabar/memory.hpp"
#include "gigabar/status.hpp"
#include "gigabar/topology.hpp"
#include "memory/runtime.hpp"
#include "rdma/registration.hpp"

namespace gigabar::hca {

// Who stores to an adapter's doorbell register.
enum class Ringer : std::uint8_t {
  kernel,  // through a mapping of the register
  cpu      // a thread of the CPU, for a word that kernels store instead
};

struct HcaOptions {
  int device = 0;                // whose kernels
  std::string port;              // "mlx5_0" or "mlx5_0/1"; empty: the nearest to the device that is usable
  int gid_index = -1;            // of RoCE; -1: the first of version 2 that is no link-local address (rdma::first_gid_v2)
  std::optional<Ringer> ringer;  // unset: kernels where they can
  std::size_t local_rank = 0;    // among the ranks of this host: those that share a device are dealt equally near ports in turn
};

// Where another port finds this one; told to peers as it is.
struct PortAddress {
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  // as verbs number them
  std::uint8_t is_ethernet = 0;
  std::uint32_t reads = 0;  // and atomics that it serves and makes at once, per queue
};
static_assert(sizeof(PortAddress) == 24);

// Of registered memory: in requests of this side, and in those of peers.
struct MemoryKeys {
  std::uint32_t local = 0;
  std::uint32_t remote = 0;
};

#if GIGABAR_HAS_MLX5DV && GIGABAR_HAS_RDMACM

// For one thread at a time. Queues must go before it.
class Hca : InPlace {
 public:
  // Errors: unavailable (no usable port: the reason of each), invalid_argument (the port's name), not_supported (the device's
  // kernels may see a NIC's writes in another order).
  static Result<std::unique_ptr<Hca>> open(const HcaOptions& options);
  ~Hca();

  const std::string& name() const noexcept { return name_; }  // "mlx5_0/1"
  const PortAddress& address() const noexcept { return address_; }
  // For as long as the Hca: host memory, or memory of the device. Errors: as ibv_reg_mr's; not_supported (with the reasons).
  Result<MemoryKeys> register_memory(void* address, std::size_t bytes);

 private:
  friend class HcaQueue;

  Hca(std::string name, const HcaOptions& options, Runtime* runtime)
      : name_(std::move(name)), device_(options.device), ringer_(options.ringer), runtime_(runtime) {}
  static void* allocate(ibv_pd* parent, void* hca, std::size_t bytes, std::size_t alignment, std::uint64_t type) noexcept;
  static void release(ibv_pd* parent, void* hca, void* place, std::uint64_t type) noexcept;
  Result<void> open_device(ibv_device* device, ibv_device_attr& attributes);
  Result<void> use_some_port(const ibv_device_attr& attributes, unsigned number, const Topology* topology, int gid_index);
  Result<void> use_port(const ibv_device_attr& attributes, unsigned number, int gid_index);
  Result<void> make_domains();
  // Where kernels find a register: its page is mapped once for all queues that share it, as those of one adapter do.
  // Errors: those of Runtime::map_registers.
  Result<std::shared_ptr<std::uint64_t>> map_register(void* place);
  // Whether the bytes are in memory that libmlx5 took from `blocks_`.
  bool is_ours(const void* place, std::size_t bytes) const noexcept;

  std::string name_;
  const int device_;
  const std::optional<Ringer> ringer_;
  Runtime* const runtime_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_pd* parent_ = nullptr;  // of queues: the domain, with memory that kernels reach
  std::uint8_t port_ = 1;
  std::uint8_t gid_index_ = 0;
  PortAddress address_;
  std::vector<rdma::Mr> regions_;
  std::map<std::uintptr_t, HostMemory> blocks_;                 // what libmlx5 asked for, by address
  std::map<const std::byte*, std::weak_ptr<std::byte>> pages_;  // for kernels, by their address
};

// One queue pair as a device::PeerQueue: ring, doorbell record and CQ are libmlx5's, in memory that kernels reach. For one thread
// at a time, with the exception that ring() names.
class HcaQueue : InPlace {
 public:
  // A new one, not connected. `depth`: slots of the ring at most, a power of two; libmlx5 may make it shorter. `hca` must outlive
  // it. Errors: out_of_memory, device_error, not_supported (a libmlx5 that keeps its queues where kernels do not reach them, or
  // registers that they may not reach when kernels are to ring).
  static Result<std::unique_ptr<HcaQueue>> create(Hca& hca, std::uint32_t depth);
  // Ends what is under way.
  ~HcaQueue();

  std::uint32_t number() const noexcept { return queue_.queue.number; }
  Ringer ringer() const noexcept { return register_for_kernels_ != nullptr ? Ringer::kernel : Ringer::cpu; }
  // Why not the kernels; empty: they do, or nobody asked them to.
  const std::string& why_cpu() const noexcept { return why_cpu_; }

  // With a queue of the peer's port. Errors: device_error and others of ibv_modify_qp.
  Result<void> connect(const PortAddress& peer, std::uint32_t peer_number);
  // One atomic on the peer's `word` of 0 by the CPU, through the same ring, doorbell and CQ as kernels': whether all of it works.
  // The peer must have connected its end. Errors: timed_out, device_error, peer_lost.
  Result<void> try_out(device::Remote word, std::int64_t timeout_ns);
  // As kernels are to have it, with the results' memory; the peer's words are the caller's. Behind try_out() it goes on where that
  // ended.
  device::PeerQueue& queue() noexcept { return queue_; }

  // Hands a doorbell that kernels rang on to the adapter; whether there was one. Beside everything but the destructor. Where
  // kernels ring it has nothing to do.
  bool ring() noexcept;

 private:
  explicit HcaQueue(Hca& hca) : hca_(hca) {}
  Result<void> make_pair(std::uint32_t depth);
  Result<void> find_memory();
  Result<void> make_memory();
  Result<void> place_doorbell();
  Error failed(const char* call, int code) const { return rdma::call_failed(call, hca_.name_, code); }

  Hca& hca_;
  std::optional<HostMemory> memory_;  // the word that kernels ring for the CPU, on a line of its own, and results
  rdma::Mr results_;
  ibv_cq* completions_ = nullptr;
  ibv_qp* pair_ = nullptr;
  bool ignores_overrun_ = true;
  std::uint64_t* register_for_cpu_ = nullptr;
  std::shared_ptr<std::uint64_t> register_for_kernels_;  // null: it is not mapped
  std::string why_cpu_;
  std::uint64_t* word_ = nullptr;
  std::uint64_t rung_ = 0;  // of `word_`
  device::PeerQueue queue_;
};

#else

// No object is ever made in such a build.
class Hca {
 public:
  static Result<std::unique_ptr<Hca>> open(const HcaOptions& options);
};

#endif

}  // namespace gigabar::hca
