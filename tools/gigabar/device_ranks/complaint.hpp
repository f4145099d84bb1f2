// SPDX-License-Identifier: Apache-2.0
// What the units of a kernel found wrong, and how a command says it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device_ranks/pair.hpp"
#include "device_ranks/unit_end.hpp"

namespace gigabar::tool::device_ranks {

// What a kernel did, for messages.
struct KernelTask {
  std::string_view name;  // "write-notify"
  std::uint64_t bytes = 0;
  std::uint64_t round_count = 0;
};

struct Complaint {
  std::uint64_t wrong_count = 0;
  std::string first_wrong;  // empty: nothing was
};
Complaint complaint_of(const KernelTask& task, const std::vector<UnitEnd>& ends);

// Of both ranks, at rank 0; "rank 1: ...".
Complaint gather_complaints(Pair& pair, const Complaint& own);

// Prints it, if it is one; the first of a command is kept.
void complain(Report& report, const Complaint& complaint, std::string& first_wrong);

// Ends the command where a unit did not do all its rounds: "kernel of rank 0: write-notify with 64 bytes: timed_out ...".
void require_ended_well(Rank rank, const KernelTask& task, const std::vector<UnitEnd>& ends);

}  // namespace gigabar::tool::device_ranks
