// SPDX-License-Identifier: Apache-2.0
#include "survey/passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/counted.hpp"

namespace gigabar::tool::survey {
namespace {

// From one begin to the next at least, so that the passes do not all see the same of what else the machine does.
constexpr double kPassSeconds = 3;
// The share of the time after which the first pass leaves out copies, so that paths get theirs.
constexpr double kCopiesEnd = 0.5;

void wait_until(double begin_s, const TimeLeft& time) {
  while (time.elapsed_s() < begin_s && !time.is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

void add_note(std::vector<std::string>& notes, std::string note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

void make_pass(Passes& all, std::span<const DeviceInfo> devices, const TimeLeft& time,
               const std::function<void(const std::string&)>& tell) {
  const double copies_end = all.count == 0 ? kCopiesEnd : 1;
  ++all.count;
  const auto tell_pass = [&](const std::string& what) { tell(fmt::format("pass {} of {}: {}", all.count, kPasses, what)); };
  tell_pass("single copies");
  add_pass(all.copies, measure_copies(devices, [&] { return time.is_over(copies_end); }));
  PathFigures pass = measure_paths(devices, [&] { return time.is_over(); }, tell_pass);
  add_pass(all.paths.alone, std::move(pass.alone));
  add_pass(all.paths.together, std::move(pass.together));
  // What the first pass had no time for, no other one has.
  if (all.count == 1) all.paths.left_out_count = pass.left_out_count;
  for (std::string& note : pass.notes) add_note(all.paths.notes, std::move(note));
}

bool is_partial(const std::vector<Figure>& figures) {
  return std::any_of(figures.begin(), figures.end(),
                     [](const Figure& figure) { return figure.failure.empty() && figure.pass_count < kPasses; });
}

void note_what_is_missing(Passes& all) {
  std::vector<std::string>& notes = all.paths.notes;
  if (all.copies.empty()) notes.emplace_back("single copies were left out, since the time for the survey was over");
  if (all.paths.left_out_count > 0) {
    notes.push_back(fmt::format("left out, since the time for the survey was over: {}", counted(all.paths.left_out_count, "run")));
  }
  if (all.count < kPasses || is_partial(all.copies) || is_partial(all.paths.alone) || is_partial(all.paths.together)) {
    notes.push_back(
        fmt::format("not all was measured in {} passes, since the time for the survey was over; 'gigabar compare' does not judge "
                    "what was measured in one",
                    kPasses));
  }
}

}  // namespace

Passes measure_passes(std::span<const DeviceInfo> devices, const TimeLeft& time,
                      const std::function<void(const std::string&)>& tell) {
  Passes all;
  const double begin_s = time.elapsed_s();
  do {
    make_pass(all, devices, time, tell);
    if (all.count < kPasses) wait_until(begin_s + all.count * kPassSeconds, time);
  } while (all.count < kPasses && !time.is_over());
  all.seconds = time.elapsed_s() - begin_s;
  note_what_is_missing(all);
  return all;
}

}  // namespace gigabar::tool::survey
