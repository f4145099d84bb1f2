// SPDX-License-Identifier: Apache-2.0
// The faults that can be asked for by name, and what a program must see of each.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/soft_hca/send_queue.hpp"
#include "scenarios/soft_hca/words.hpp"

namespace gigabar::tool::softhca {

enum class FaultKind : std::uint8_t {
  none,
  late_record,
  lost_record,
  lost_doorbell,
  reorder,
  error,
  wrap,
  full_ring,
  late_read,
  stalled_hca,
  stalled_consumer
};

struct Fault {
  FaultKind kind = FaultKind::none;
  std::uint64_t value = 0;  // polls, doorbells, percent, a request or milliseconds, as the kind says
};

// "error", "none".
std::string_view name_of(FaultKind kind) noexcept;
// "error:3"; without the number where the kind has none.
std::string name_of(const Fault& fault);
// What has to happen, in one sentence.
std::string_view expectation_of(FaultKind kind, bool confirms_reads) noexcept;
// "late-record[:POLLS], ...", for --help.
std::string fault_names();

// Texts as "error:3"; "all" is each kind once. Ends the command as bad usage for others.
std::vector<Fault> parse_faults(const std::vector<std::string>& texts);

inline bool is_lost(FaultKind kind) noexcept { return kind == FaultKind::lost_record || kind == FaultKind::lost_doorbell; }
// Whether nothing can complete until the fault is taken back.
inline bool stalls_hca(FaultKind kind) noexcept { return kind == FaultKind::full_ring || kind == FaultKind::stalled_hca; }

using soft_hca::FaultCounts;
inline constexpr std::array kFaultCounts = {Named{&FaultCounts::lost_doorbells, "lost_doorbells"},
                                            Named{&FaultCounts::lost_records, "lost_records"},
                                            Named{&FaultCounts::late_records, "late_records"},
                                            Named{&FaultCounts::late_reads, "late_reads"},
                                            Named{&FaultCounts::errors, "errors"},
                                            Named{&FaultCounts::polls_sat_out, "polls_sat_out"},
                                            Named{&FaultCounts::polls_stalled, "polls_stalled"}};

// What the HCA is told. `requests_before`: work requests that the queue has had.
soft_hca::Faults hca_faults(const Fault& fault, Syndrome syndrome, std::uint64_t requests_before);
// Whether the HCA makes it and counts how often it took effect, that count, and the count in words ("3 records late").
bool is_of_hca(FaultKind kind) noexcept;
std::uint64_t effect_of(FaultKind kind, const FaultCounts& counts) noexcept;
std::string effect_text(FaultKind kind, const FaultCounts& counts);

}  // namespace gigabar::tool::softhca
