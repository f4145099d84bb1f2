// SPDX-License-Identifier: Apache-2.0
#include "streams/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/counted.hpp"
#include "streams/interrupt.hpp"
#include "support/progress_line.hpp"

namespace gigabar::tool::streams {
namespace {

winsize size() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) size = {24, 80, 0, 0};
  return size;
}

std::string sum_of(std::span<const StreamProgress> transfers) {
  double done_gb = 0;
  double gb_per_s = 0;
  std::size_t done_count = 0;
  for (const StreamProgress& transfer : transfers) {
    done_gb += static_cast<double>(transfer.bytes_done) / 1e9;
    gb_per_s += transfer.is_done ? 0 : transfer.gb_per_s;
    done_count += transfer.is_done ? 1 : 0;
  }
  return fmt::format("  {:.3f} GB  {:.3f} GB/s, {} of {} done", done_gb, gb_per_s, done_count,
                     counted(transfers.size(), "transfer"));
}

}  // namespace

void Progress::begin(const Point& point, const std::string& position) {
  names_.clear();
  for (const Transfer& transfer : point.plan.transfers) names_.push_back(short_text(transfer));
  name_width_ = 0;
  for (const std::string& name : names_) name_width_ = std::max(name_width_, name.size());
  repeat_count_ = point.plan.repeats;
  began_ = {};
  title_ = point.title + (point.title.empty() || position.empty() ? "" : ", ") + position;
  show({title_.empty() ? "preparing" : title_ + ": preparing"});
}

void Progress::update(unsigned repeat, std::span<const StreamProgress> transfers) {
  if (!is_shown_) return;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}{}repeat {} of {}{}", title_, title_.empty() ? "" : ", ", repeat + 1, repeat_count_,
                              Interrupt::is_set() ? "; ending after the copies in flight" : time_left(repeat, transfers)));
  if (transfers.size() + 1 < size().ws_row) {
    for (const StreamProgress& transfer : transfers) lines.push_back(line_of(transfer));
  } else {
    lines.push_back(sum_of(transfers));
  }
  show(lines);
}

// ", about 40 s left", from what the slowest transfer has done; empty in the first second and where no transfer has an end.
std::string Progress::time_left(unsigned repeat, std::span<const StreamProgress> transfers) {
  const auto now = std::chrono::steady_clock::now();
  if (began_ == std::chrono::steady_clock::time_point{}) began_ = now;
  const double elapsed_s = std::chrono::duration<double>(now - began_).count();
  double part = 2;
  for (const StreamProgress& transfer : transfers) {
    if (transfer.bytes_total == 0) continue;
    part = std::min(part, static_cast<double>(transfer.bytes_done) / static_cast<double>(transfer.bytes_total));
  }
  return part > 1 ? std::string() : tool::time_left(elapsed_s, repeat + part, repeat_count_);
}

std::string Progress::line_of(const StreamProgress& transfer) const {
  const std::string_view name = transfer.index < names_.size() ? names_[transfer.index] : std::string_view();
  const double done_gb = static_cast<double>(transfer.bytes_done) / 1e9;
  std::string line = fmt::format("  {:>3}  {:<{}}  {:>10.3f} GB", transfer.index, name, name_width_, done_gb);
  if (transfer.bytes_total != 0) {
    line +=
        fmt::format(" {:>4.0f} %", 100.0 * static_cast<double>(transfer.bytes_done) / static_cast<double>(transfer.bytes_total));
  } else {
    line += "       ";
  }
  return line + (transfer.is_done ? "  done" : fmt::format("  {:>9.3f} GB/s", transfer.gb_per_s));
}

// In place of what was shown before.
void Progress::show(const std::vector<std::string>& lines) {
  if (!is_shown_) return;
  std::string text = line_count_ == 0 ? "" : fmt::format("\x1b[{}A", line_count_);
  text += "\r\x1b[J";
  const std::size_t width = size().ws_col - std::size_t{1};
  for (const std::string& line : lines) text += line.substr(0, width) + "\n";
  line_count_ = lines.size();
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace gigabar::tool::streams
