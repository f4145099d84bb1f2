// SPDX-License-Identifier: Apache-2.0
// One line of the table, from making the queues to counting how each operation ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "device/soft_hca/soft_hca.hpp"
#include "scenarios/soft_hca/lane.hpp"
#include "scenarios/soft_hca/plan.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::softhca {

// An operation that did not end ok at its first wait.
struct NotOk {
  std::uint32_t thread = 0;
  std::uint32_t queue = 0;
  Operation operation;
};

struct QueueFacts {
  std::uint64_t ok_count = 0;         // operations that ended ok at their first wait
  std::uint64_t filled_requests = 0;  // taken by the ring in the timed rounds, without those of the recovery
  bool has_wrapped = false;           // 16 bits of the index
  bool was_done_unseen = false;       // the HCA had completed all of it while nobody had looked at the CQ
  soft_hca::QueueStatistics statistics;
};

struct CaseResult {
  Case is;
  std::uint64_t operations = 0;
  std::uint64_t failed_count = 0;             // did not end ok, also later
  std::map<std::string, std::uint64_t> ends;  // how many ended how
  std::vector<NotOk> not_ok;
  std::vector<QueueFacts> queues;
  soft_hca::FaultCounts faults;  // that took effect, in all queues
  std::uint64_t overtaken_count = 0;
  std::uint64_t stale_count = 0;
  std::uint64_t wrong_count = 0;
  std::string first_wrong;
  Summary summary;  // of a round: of one operation, where the window and a thread's queues are one
  double million_per_s = 0;
  bool was_interrupted = false;
};

// "ok", "timed_out, then ok", "peer_lost (retries_exceeded)", "timed_out (not posted)".
std::string end_text(const Operation& operation);

// `is_interrupted` ends it early when it is set.
CaseResult run_case(const Plan& plan, const Case& one, const std::atomic<bool>& is_interrupted);

}  // namespace gigabar::tool::softhca
