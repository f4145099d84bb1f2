// SPDX-License-Identifier: Apache-2.0
#include "survey/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/counted.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::survey {

double Figure::value() const {
  std::vector<double> sorted = samples;
  return median(sorted);
}

double Figure::least() const { return samples.empty() ? 0 : *std::min_element(samples.begin(), samples.end()); }
double Figure::most() const { return samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end()); }

Json to_json(const Figure& figure) {
  Json json = {{"key", figure.key}, {"unit", figure.unit}};
  if (!figure.failure.empty()) {
    json["failure"] = figure.failure;
    return json;
  }
  json["value"] = figure.value();
  json["min"] = figure.least();
  json["max"] = figure.most();
  json["samples"] = figure.samples;
  json["passes"] = figure.pass_count;
  json["path"] = figure.path;
  if (!figure.link.empty()) json["link"] = figure.link;
  if (figure.ratio() > 0) json["ratio"] = figure.ratio();
  return json;
}

namespace {

// Adds the samples of one more pass to those of the passes before. Figures that are new are added as well; one that failed before,
// or fails now, has failed.
void add_pass(std::vector<Figure>& figures, std::vector<Figure> pass) {
  for (Figure& more : pass) {
    const auto known = std::find_if(figures.begin(), figures.end(), [&more](const Figure& each) { return each.key == more.key; });
    if (known == figures.end()) {
      figures.push_back(std::move(more));
      continue;
    }
    known->samples.insert(known->samples.end(), more.samples.begin(), more.samples.end());
    ++known->pass_count;
    if (known->failure.empty()) known->failure = std::move(more.failure);
    known->has_wrong_data = known->has_wrong_data || more.has_wrong_data;
  }
}

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

void make_pass(Passes& all, std::span<const DeviceInfo> devices, const TimeLeft& time, const Tell& tell) {
  const double copies_end = all.count == 0 ? kCopiesEnd : 1;
  ++all.count;
  const auto tell_pass = [&](const std::string& what) { tell(fmt::format("pass {} of {}: {}", all.count, kPasses, what)); };
  tell_pass("single copies");
  add_pass(all.copies, measure_copies(devices, time, copies_end));
  PathFigures pass = measure_paths(devices, time, tell_pass);
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

Passes measure_passes(std::span<const DeviceInfo> devices, const TimeLeft& time, const Tell& tell) {
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
