// SPDX-License-Identifier: Apache-2.0
#include "streams/verdict.hpp"

#include <fmt/format.h>

#include "support/failure.hpp"

namespace gigabar::tool::streams {
namespace {

std::string first_of(const std::vector<std::string>& lines) {
  return lines.size() == 1 ? lines.front() : fmt::format("{} (and {} more)", lines.front(), lines.size() - 1);
}

}  // namespace

void Verdict::judge_ratio(const Point& point, std::size_t index, std::vector<std::string>& notes) {
  const TransferReport& report = point.report->transfers[index];
  const Transfer& transfer = report.transfer;
  if (transfer.is_background || transfer.is_latency || !moves_data(transfer.executor) || report.life_gb_per_s.samples.empty())
    return;
  if (!(report.ratio > 0)) {
    std::string note = fmt::format("transfer {} ({}): its link's rate is unknown{}{}, so --expect does not judge it", index,
                                   short_text(transfer), report.link.reason.empty() ? "" : ": ", report.link.reason);
    if (noted_.insert(note).second) notes.push_back(std::move(note));
  } else if (report.ratio < *expected_ratio_) {
    misses_.push_back(fmt::format("{}{}transfer {} ({}): {:.3f} GB/s is {:.1f} % of the {:.3f} GB/s of its link ({}); --expect {}",
                                  point.title, point.title.empty() ? "" : ": ", index, short_text(transfer),
                                  report.life_gb_per_s.median, 100 * report.ratio, report.link.gb_per_s, report.link.name,
                                  *expected_ratio_));
  }
}

std::vector<std::string> Verdict::judge(const Point& point) {
  std::vector<std::string> notes;
  const std::string title = point.title.empty() ? "" : point.title + ": ";
  if (point.error) {
    // A cell that this machine cannot have is the matrix' N/A.
    if (point.preset.empty() || !is_absent(*point.error)) {
      is_bad_usage_ |= point.error->status == Status::invalid_argument;
      failures_.push_back(title + point.error->message());
    }
    return notes;
  }
  if (!point.report) return notes;
  for (std::size_t i = 0; i < point.report->transfers.size(); ++i) {
    const TransferReport& report = point.report->transfers[i];
    if (report.error) {
      failures_.push_back(title + report.error->message());
    } else if (copy_count(report) == 0 && !report.transfer.is_background && !point.report->was_stopped) {
      failures_.push_back(fmt::format("{}transfer {} ({}): nothing was measured", title, i, short_text(report.transfer)));
    } else if (expected_ratio_) {
      judge_ratio(point, i, notes);
    }
  }
  return notes;
}

void Verdict::conclude(bool is_interrupted) const {
  if (is_interrupted) throw CommandFailure(kExitInterrupted, "interrupted; the figures are of what was done until then");
  if (!failures_.empty()) throw CommandFailure(is_bad_usage_ ? kExitBadUsage : kExitFailed, first_of(failures_));
  if (!misses_.empty()) throw CommandFailure(kExitBelowExpectation, first_of(misses_));
}

}  // namespace gigabar::tool::streams
