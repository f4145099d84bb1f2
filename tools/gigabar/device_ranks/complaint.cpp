// SPDX-License-Identifier: Apache-2.0
#include "device_ranks/complaint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.hpp"
#include "ranks/fabric_failure.hpp"
#include "ranks/words.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::device_ranks {
namespace {

constexpr std::size_t kMaxComplaintBytes = 8192;

Json to_json(const Complaint& complaint) {
  return {{"wrong_count", complaint.wrong_count}, {"first_wrong", complaint.first_wrong}};
}

// What another process sent is not trusted.
Complaint complaint_from(const Json& json, std::size_t rank) {
  const auto count = json.find("wrong_count");
  const auto text = json.find("first_wrong");
  if (count == json.end() || !count->is_number_unsigned() || text == json.end() || !text->is_string()) {
    fail(fmt::format("rank {} has sent something else than what it checked", rank));
  }
  return {count->get<std::uint64_t>(), fmt::format("rank {}: {}", rank, plain(text->get<std::string>()))};
}

}  // namespace

Complaint complaint_of(const KernelTask& task, const std::vector<UnitEnd>& ends) {
  Complaint complaint;
  for (const UnitEnd& end : ends) {
    if (end.wrong_count != 0 && complaint.first_wrong.empty()) {
      complaint.first_wrong = fmt::format("{}, {}, round {}, message {}, offset {}: expected {:#x}, found {:#x}", task.name,
                                          counted(task.bytes, "byte"), end.wrong_round, end.wrong_message, end.wrong_offset_bytes,
                                          end.wrong_expected, end.wrong_found);
    }
    complaint.wrong_count += end.wrong_count;
  }
  return complaint;
}

Complaint gather_complaints(Pair& pair, const Complaint& own) {
  const std::vector<Json> all =
      ranks::read_cards(ranks::gather(pair.fabric(), ranks::dump(to_json(own)), kMaxComplaintBytes, pair.patience()));
  Complaint sum;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Complaint each = complaint_from(all[i], i);
    if (each.wrong_count != 0 && sum.wrong_count == 0) sum.first_wrong = each.first_wrong;
    sum.wrong_count += each.wrong_count;
  }
  return sum;
}

void complain(Report& report, const Complaint& complaint, std::string& first_wrong) {
  if (complaint.wrong_count == 0) return;
  report.print("# DATA VALIDATION ERROR: {} ({})\n", complaint.first_wrong, counted(complaint.wrong_count, "wrong word"));
  if (first_wrong.empty()) first_wrong = complaint.first_wrong;
}

void require_ended_well(Rank rank, const KernelTask& task, const std::vector<UnitEnd>& ends) {
  for (std::size_t unit = 0; unit < ends.size(); ++unit) {
    const UnitEnd& end = ends[unit];
    if (end.status == Status::ok) continue;
    const std::string what = fmt::format("kernel of rank {}: {} with {}: {} of unit {} in round {} of {}", rank, task.name,
                                         counted(task.bytes, "byte"), name_of(end.status), unit, end.rounds_done, task.round_count);
    const bool is_late = end.status == Status::timed_out;
    throw ranks::FabricFailure(end.status, is_late ? what + "; take fewer rounds (-i) or a longer --timeout" : what);
  }
}

}  // namespace gigabar::tool::device_ranks
