// SPDX-License-Identifier: Apache-2.0
// The options of a Fabric (gigabar/fabric.hpp): the job, the paths it may use, its limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gigabar/export.hpp"
#include "gigabar/types.hpp"

namespace gigabar::inline v0 {

enum class Preference : std::uint8_t {
  allow,    // as the limits and the topology decide
  prefer,   // wherever it is possible
  require,  // an operation that would take another path is an error with the reason
  forbid
};

// The paths that a fabric, or one operation, may use for GPU memory. At most one path can be required.
struct PathPolicy {
  Preference gdr = Preference::allow;
  Preference p2p = Preference::allow;
  Preference bar = Preference::allow;
  Preference staged = Preference::allow;
  bool operator==(const PathPolicy&) const = default;
};

enum class RailPolicy : std::uint8_t {
  first,        // the nearest rail carries everything
  round_robin,  // operations take turns
  fixed,        // rail (local rank modulo rails): with `rails` as the process-to-rail list
};
GIGABAR_API std::string_view name_of(RailPolicy policy) noexcept;

// Sizes at which one path or protocol replaces another. Unset values are those of `gigabar tune` for this machine, else the
// defaults (docs/fabric.md has the source of each).
struct FabricLimits {
  std::optional<std::uint64_t> eager_bytes;     // messages and writes up to this size travel inside one message
  std::optional<std::uint64_t> gdr_bytes;       // writes to GPU memory by the NIC up to this size; staged above
  std::optional<std::uint64_t> gdr_read_bytes;  // reads from GPU memory by the NIC up to this size
  std::optional<std::uint64_t> chunk_bytes;     // of the staged pipeline
  std::optional<unsigned> chunk_count;          // chunks in flight per operation
  std::optional<std::uint64_t> kernel_bytes;  // p2p copies up to this size may use the persistent copy kernel (up to 2 ms on a GPU)
  std::optional<std::uint64_t> stripe_bytes;  // operations from this size on use all rails at once
};

// Every member has a default. Environment variables replace members that are not set (docs/fabric.md).
struct FabricOptions {
  // The job. Unset: the launcher's values (PMIx, RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT as torchrun sets them, Slurm's srun; the
  // table in docs/fabric.md), else a job of one rank. Launchers that do not give the address of rank 0 are refused.
  std::optional<Rank> rank;
  std::optional<Rank> rank_count;
  std::optional<std::string> master_address;  // host name or address of rank 0; IPv6 with or without brackets
  std::optional<std::uint16_t> master_port;
  std::optional<std::string> job_key;  // at least 16 bytes, the same at every rank; none: all ranks have one host and one user

  std::vector<TransportKind> transports;  // those allowed, best first; empty: GIGABAR_TRANSPORTS, else local, verbs, ucx, tcp
  // UCX's ports check no key: whoever reaches them can write anywhere in this process. UCX is opened only where this is true: it
  // states that everybody who reaches the ports is trusted, on the job's network or among the users of the host
  // (GIGABAR_UCX_TRUST_NETWORK). Default false.
  std::optional<bool> ucx_trust_network;
  std::vector<std::string> rails;      // "mlx5_0", "mlx5_1/1"; empty: GIGABAR_RAILS, else by distance from `device`
  std::optional<unsigned> rail_count;  // maximum rails per peer; default 1
  std::optional<RailPolicy> rail_policy;
  std::optional<int> device;  // the GPU this rank works with; default: local rank modulo GPUs
  // The CPUs of the fabric's own threads and the NUMA node of its buffers, among those that this process may use. "near" (default):
  // the node of `device`, without a GPU that of the nearest rail of verbs; "any"; or CPUs, "0-7,16", and their node.
  std::optional<std::string> cpus;
  PathPolicy policy;
  FabricLimits limits;
  std::optional<bool> stand_in_registration;  // false: NICs refuse stand-in memory, as without GPUDirect RDMA. For tests
  // For RDMA connections. Service level: InfiniBand 0 to 15, RoCE 0 to 7 (Ethernet priority), none over iWARP.
  std::optional<int> gid_index, traffic_class, service_level;
  std::optional<bool> progress_thread;     // default true: peers' operations make progress while this rank computes
  std::optional<bool> notification_words;  // default true: notifications are words where the link can write them; false: messages
  Timeout connect_timeout = Timeout::of(std::chrono::seconds(30));  // for a rank to appear, and for making a connection
};

}  // namespace gigabar::inline v0
