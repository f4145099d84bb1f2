// SPDX-License-Identifier: Apache-2.0
// An adapter of mlx5 whose queues kernels use themselves: the device with its port, the memory that its queues lie in, and the
// memory that work requests name. By public verbs only; libmlx5 tells where it keeps what.
//
// Never run on hardware: tests put a software HCA behind the same calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gigabar/status.hpp"

namespace gigabar::hca {

// Who stores to an adapter's doorbell register.
enum class Ringer : std::uint8_t {
  kernel,  // through a mapping of the register
  cpu      // a thread of the CPU, for a word that kernels store instead
};

struct HcaOptions {
  int device = 0;                // whose kernels
  std::string port;              // "mlx5_0" or "mlx5_0/1"; empty: the nearest to the device that is usable
  int gid_index = -1;            // of RoCE; -1: the first of version 2 that is no link-local address
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

// For one thread at a time. Queues must go before it.
class Hca {
 public:
  // Errors: unavailable (no usable port: the reason of each), invalid_argument (the port's name), not_supported (the device's
  // kernels may see a NIC's writes in another order).
  static Result<std::unique_ptr<Hca>> open(const HcaOptions& options);
  ~Hca();
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  const std::string& name() const noexcept;  // "mlx5_0/1"
  const PortAddress& address() const noexcept;
  // For as long as the Hca: host memory, or memory of the device. Errors: as ibv_reg_mr's; not_supported (with the reasons).
  Result<MemoryKeys> register_memory(void* address, std::size_t bytes);

  // Of queues.
  struct State;
  State& state() noexcept { return *state_; }

 private:
  explicit Hca(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace gigabar::hca
