// SPDX-License-Identifier: Apache-2.0
// Where the fabric's own threads run and its buffers lie: on the CPUs and the memory beside the GPU, or the NIC, that this rank
// works with, or where the program says. The program's threads are never touched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/status.hpp"
#include "platform/numa.hpp"

namespace gigabar::fabric {

// What `cpus` asks for.
struct CpuWish {
  enum class Kind : std::uint8_t { near, any, listed };
  Kind kind = Kind::near;
  std::vector<int> cpus;  // listed
};

// "near", "any", or a list such as "0-7,16" of CPUs that the calling thread may use. `name`: of the option or the variable, for the
// error. Errors: invalid_argument, which says what is wrong with which CPU.
Result<CpuWish> parse_cpu_wish(std::string_view name, std::string_view value);

// What this rank works beside.
struct Neighbour {
  std::string name;    // "device 0", "rail mlx5_0/1"
  int numa_node = -1;  // -1: the machine does not say
};

struct Placement {
  std::vector<int> cpus;  // of the fabric's threads; empty: they are not bound
  int numa_node = -1;     // of the fabric's buffers; -1: any
  std::string why;        // for the settings: "near: 0-15 (node 0 of device 0)"

  // The fabric's memory is allocated so while the value lives, by this thread.
  std::optional<NumaAllocationPolicy> prefer_own_node() const;
};

// Only CPUs that the calling thread may use.
Placement resolve_placement(const CpuWish& wish, const std::optional<Neighbour>& neighbour);

}  // namespace gigabar::fabric
