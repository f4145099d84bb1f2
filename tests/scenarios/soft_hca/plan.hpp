// SPDX-License-Identifier: Apache-2.0
// What `gigabar softhca` is asked to do: as typed, and settled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/soft_hca/faults.hpp"
#include "scenarios/soft_hca/words.hpp"

namespace gigabar::tool::softhca {

// What goes wrong without being announced: proves that the command finds it.
enum class Plant : std::uint8_t { nothing, data, guard, error, stall };

struct Options {
  std::optional<Op> op;  // none: all
  std::string sizes;
  std::optional<std::uint32_t> iteration_count;
  std::optional<std::uint32_t> warm_up_count;
  std::uint32_t window = 1;
  std::uint32_t queue_count = 1;
  std::uint32_t thread_count = 1;
  std::uint32_t proxy_count = 1;
  std::uint32_t slot_count = 1024;
  ScopeKind scope = ScopeKind::thread;
  std::optional<Sharing> sharing;
  bool is_collapsed = true;
  bool confirms_reads = false;
  double timeout_seconds = 1;
  std::vector<std::string> faults;
  Syndrome syndrome = Syndrome::retries_exceeded;
  Plant plant = Plant::nothing;
  std::string json_path;
};

inline constexpr std::uint32_t kMaxThreads = 256;
inline constexpr std::uint32_t kMaxWindow = 65536;
inline constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxMemoryBytes = std::uint64_t{1} << 30;  // of one side

// One line of the table, everything settled.
struct Case {
  Op op = Op::write;
  std::uint64_t bytes = 0;
  Fault fault;
  std::uint32_t iterations = 0;
  std::uint32_t warm_up = 0;
  std::uint32_t window = 1;           // operations that a thread posts to a queue before it waits for them
  std::uint32_t slots_of_rounds = 1;  // rounds whose operations may be open at the same time
};

struct Plan {
  Options options;
  Sharing sharing = Sharing::exclusive;
  std::vector<Case> cases;
};

// Ends the command as bad usage where options contradict each other.
Plan make_plan(const Options& options);

// Threads that post together are one unit.
std::uint32_t unit_count(const Options& options) noexcept;
std::uint32_t lanes_of_unit(const Options& options) noexcept;
// The queues that a unit posts to.
std::vector<std::uint32_t> queues_of_unit(const Options& options, std::uint32_t unit);
// The most units that post to one queue.
std::uint32_t units_of_queue(const Options& options) noexcept;
// Work requests of one operation, and of all that a unit posts at once.
std::uint32_t requests_of(const Options& options, Op op) noexcept;
std::uint32_t requests_of_post(const Options& options, Op op) noexcept;

}  // namespace gigabar::tool::softhca
