// SPDX-License-Identifier: Apache-2.0
#include "doctor/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string>

#include "base/counted.hpp"
#include "base/old_check_ids.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::doctor {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kMaxReadingsShown = 8;
// From what has to be done to what needs nothing.
constexpr std::array<Verdict, 5> kOrder = {Verdict::fail, Verdict::warn, Verdict::unknown, Verdict::pass, Verdict::skip};

bool wants_reading(Verdict verdict) { return verdict == Verdict::fail || verdict == Verdict::warn || verdict == Verdict::unknown; }

// Colours of a terminal (ECMA-48, SGR): red, yellow, magenta, green, and dim.
const char* colour_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fail: return "\x1b[1;31m";
    case Verdict::warn: return "\x1b[1;33m";
    case Verdict::unknown: return "\x1b[1;35m";
    case Verdict::pass: return "\x1b[32m";
    case Verdict::skip: break;
  }
  return "\x1b[2m";
}

std::string verdict_text(const Report& report, Verdict verdict) {
  const std::string name = fmt::format("{:<7}", name_of(verdict));
  return report.has_colours() ? colour_of(verdict) + name + "\x1b[0m" : name;
}

std::string head_of(const Report& report, const Finding& finding) {
  const std::string subject = finding.subject.empty() ? "" : ": " + plain(finding.subject, 200);
  return fmt::format("{} {}{}", verdict_text(report, finding.verdict), plain(finding.check, 64), subject);
}

std::string readings_of(const Options& options, const Finding& finding) {
  std::string text;
  const std::size_t shown = options.is_verbose ? finding.readings.size() : std::min(finding.readings.size(), kMaxReadingsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const Reading& reading = finding.readings[i];
    // Not wrapped: a path and its value are there to be copied.
    text += fmt::format("  {:<8}{} = {}\n", i == 0 ? "read" : "", plain(reading.source, 300), plain(reading.value, 300));
  }
  if (shown < finding.readings.size()) text += fmt::format("          and {} more (--verbose)\n", finding.readings.size() - shown);
  return text;
}

// `above` is the block before, or null: what stands there already is not said again for the next subject of the same check.
void print_block(Report& report, const Options& options, const Finding& finding, const Finding* above) {
  const CheckInfo* const check = find_check(finding.check);
  const bool is_next = above != nullptr && above->check == finding.check && wants_reading(above->verdict);
  std::string text = head_of(report, finding) + "\n";
  text += wrapped(plain(finding.statement), kWidth, 2);
  text += readings_of(options, finding);
  if (check != nullptr && wants_reading(finding.verdict) && !is_next) text += part_of("why", plain(check->why));
  const std::string remedy = plain(finding.remedy) + (finding.needs_reboot ? " (needs a reboot)" : "");
  const bool is_same = is_next && above->remedy == finding.remedy && above->needs_reboot == finding.needs_reboot;
  if (!finding.remedy.empty()) text += part_of("remedy", is_same ? "as above" : remedy);
  report.print("{}\n", text);
}

void print_line(Report& report, const Finding& finding) {
  report.print("{}: {}\n", head_of(report, finding), plain(finding.statement, 300));
}

void print_one(Report& report, const Options& options, const Finding& finding, const Finding*& above) {
  if (wants_reading(finding.verdict) || options.is_verbose) {
    print_block(report, options, finding, above);
    above = &finding;
  } else if (options.shows_all || options.symptom) {
    print_line(report, finding);
  }
}

std::size_t check_count(const Examination& examination) {
  std::set<std::string_view> ids;
  for (const Finding& finding : examination.findings) ids.insert(finding.check);
  return ids.size();
}

}  // namespace

std::string current_id_with_note(std::string_view typed) {
  std::string current = current_check_id(typed);
  if (current != typed) fmt::print(stderr, "note: the check {} is called {} now\n", plain(typed, 100), plain(current, 100));
  return current;
}

std::string part_of(const char* name, const std::string& text) {
  constexpr std::size_t kMargin = 10;
  std::string lines = wrapped(text, kWidth, kMargin);
  const std::string label = fmt::format("  {:<{}}", name, kMargin - 2);
  if (lines.size() > kMargin) lines.replace(0, kMargin, label);
  return lines;
}

void print_findings(Report& report, const Options& options, const std::vector<Finding>& findings) {
  const Finding* above = nullptr;
  if (options.symptom) {
    for (const Finding& finding : findings) print_one(report, options, finding, above);
    return;
  }
  for (const Verdict verdict : kOrder) {
    for (const Finding& finding : findings) {
      if (finding.verdict == verdict) print_one(report, options, finding, above);
    }
  }
}

std::string counts_text(const Examination& examination) {
  std::string counts;
  for (const Verdict verdict : kOrder) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", examination.count(verdict), name_of(verdict));
  }
  return counts;
}

void print_summary(Report& report, const Examination& examination) {
  const std::size_t checked = check_count(examination);
  const std::size_t found = examination.findings.size();
  const std::string findings = found == checked ? "" : ", " + counted(found, "finding");
  report.print("{}{}: {}\n", counted(checked, "check"), findings, counts_text(examination));
}

namespace {

struct BestNic {
  int gpu = 0;
  int nic = -1;
  std::string reason;
  Route route;
};

std::vector<BestNic> best_nics(const Topology& topology) {
  std::vector<BestNic> all;
  for (const NicOrder& order : nic_orders(topology)) {
    const auto gpu = static_cast<int>(all.size());
    BestNic best{gpu, -1, order.reason, {}};
    if (!order.nics.empty()) {
      best.nic = order.nics.front();
      best.route = route_between(topology, {Endpoint::Kind::gpu, gpu}, {Endpoint::Kind::nic, best.nic});
    }
    all.push_back(std::move(best));
  }
  return all;
}

std::string rate_text(const Route& route) {
  if (!route.gb_per_s) return "rate unknown";
  return fmt::format("at most {:.1f} GB/s, by {}", *route.gb_per_s,
                     route.bottleneck.empty() ? "an unknown link" : plain(route.bottleneck, 200));
}

}  // namespace

void print_best_nics(Report& report, const Topology& topology) {
  if (topology.gpus.empty()) return;
  for (const BestNic& best : best_nics(topology)) {
    const Gpu& gpu = topology.gpus[static_cast<std::size_t>(best.gpu)];
    const std::string name = fmt::format("GPU{} {}", best.gpu, gpu.address.to_string());
    if (best.nic < 0) {
      report.print("{}: no NIC with RDMA\n", name);
      continue;
    }
    report.print("{}: best NIC {} ({}, {}; {})\n", name, plain(topology.nics[static_cast<std::size_t>(best.nic)].name, 64),
                 short_name(best.route.relation, best.route.nvlink_count), rate_text(best.route), best.reason);
  }
}

Json best_nics_json(const Topology& topology) {
  return list_of(best_nics(topology), [&](const BestNic& best) -> Json {
    const bool has_nic = best.nic >= 0;
    return {{"gpu", best.gpu},
            {"gpu_address", topology.gpus[static_cast<std::size_t>(best.gpu)].address.to_string()},
            {"nic", has_nic ? Json(plain(topology.nics[static_cast<std::size_t>(best.nic)].name)) : Json()},
            {"reason", best.reason},
            {"relation", has_nic ? Json(name_of(best.route.relation)) : Json()},
            {"gb_per_s", or_null(best.route.gb_per_s)},
            {"bottleneck", text_or_null(plain(best.route.bottleneck))}};
  });
}

Json to_json(const Finding& finding) {
  const CheckInfo* const check = find_check(finding.check);
  const auto reading_json = [](const Reading& reading) -> Json {
    return {{"source", plain(reading.source)}, {"value", plain(reading.value)}};
  };
  return {{"check", plain(finding.check)},
          {"title", check == nullptr ? Json() : Json(check->title)},
          {"subject", plain(finding.subject)},
          {"verdict", name_of(finding.verdict)},
          {"statement", plain(finding.statement)},
          {"readings", list_of(finding.readings, reading_json)},
          {"why", check == nullptr ? Json() : Json(check->why)},
          {"remedy", plain(finding.remedy)},
          {"needs_reboot", finding.needs_reboot}};
}

Json summary_json(const Examination& examination) {
  Json json = {{"checks", check_count(examination)}, {"findings", examination.findings.size()}};
  for (const Verdict verdict : kOrder) json[std::string(name_of(verdict))] = examination.count(verdict);
  return json;
}

}  // namespace gigabar::tool::doctor
