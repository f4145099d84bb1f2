// SPDX-License-Identifier: Apache-2.0
// What an opened Hca and its queues share.
#pragma once

#if GIGABAR_HAS_MLX5DV && GIGABAR_HAS_RDMACM

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/hca/hca.hpp"
#include "driver/mlx5dv/mlx5dv.hpp"
#include "gigabar/memory.hpp"
#include "memory/runtime.hpp"
#include "rdma/registration.hpp"

namespace gigabar::hca {

struct Hca::State {
  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // Where kernels find a register: its page is mapped once for all queues that share it, as those of one adapter do.
  // Errors: those of Runtime::map_registers.
  Result<std::uint64_t*> map_register(void* place);
  void unmap_register(void* place) noexcept;
  // Whether the bytes are in memory that libmlx5 took from `blocks`.
  bool is_ours(const void* place, std::size_t bytes) const noexcept;

  std::string name;
  int device = 0;
  std::optional<Ringer> ringer;
  Runtime* runtime = nullptr;
  ibv_context* context = nullptr;
  ibv_pd* domain = nullptr;
  ibv_pd* parent = nullptr;  // of queues: the domain, with memory that kernels reach
  std::uint8_t port = 1;
  std::uint8_t gid_index = 0;
  PortAddress address;
  std::vector<rdma::Mr> regions;

 private:
  struct MappedPage {
    std::byte* for_kernels = nullptr;
    unsigned users = 0;
  };
  friend class Hca;
  static void* allocate(ibv_pd* parent, void* state, std::size_t bytes, std::size_t alignment, std::uint64_t type) noexcept;
  static void release(ibv_pd* parent, void* state, void* place, std::uint64_t type) noexcept;
  Result<void> make_domains();

  std::map<std::uintptr_t, HostMemory> blocks_;  // what libmlx5 asked for, by address
  std::map<std::uintptr_t, MappedPage> pages_;
};

}  // namespace gigabar::hca

#endif
