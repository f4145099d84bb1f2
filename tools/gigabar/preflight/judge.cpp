// SPDX-License-Identifier: Apache-2.0
#include "preflight/preflight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/counted.hpp"
#include "doctor/check.hpp"
#include "support/failure.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::preflight {
namespace {

// The order in which the answer names what is unfit. Wrong bytes come before everything: a job that gets them does not even fail.
enum Gravity { kWrongBytes, kFailed, kFailedCheck, kRequirement, kSlow };

// The checks that can explain a path that is slow, the likeliest first.
constexpr std::array kCauses = {"probe.link", "pci.link",   "gpu.throttle", "nvlink",
                                "pci.acs",    "iommu.mode", "numa.cpu",     "cpu.governor"};

bool is_required(const Evidence& evidence, Requirement::Kind kind, std::string_view name) {
  return std::ranges::any_of(evidence.criteria.requirements,
                             [&](const Requirement& each) { return each.kind == kind && is_of(name, each.name); });
}

// The devices of the topology that a text names as a word.
void name_devices(const Topology& topology, Item& item) {
  const auto names = [&item](const std::string& name) {
    const auto is_part = [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_'; };
    for (auto at = item.subject.find(name); !name.empty() && at != std::string::npos; at = item.subject.find(name, at + 1)) {
      const auto end = at + name.size();
      if ((at == 0 || !is_part(item.subject[at - 1])) && (end == item.subject.size() || !is_part(item.subject[end]))) return true;
    }
    return false;
  };
  for (const Gpu& gpu : topology.gpus) {
    if (names(gpu.address.to_string())) item.gpus.push_back(gpu.address.to_string());
  }
  for (const Nic& nic : topology.nics) {
    if (names(nic.name)) item.nics.push_back(nic.name);
  }
}

Item item_of(const Evidence& evidence, const Finding& finding) {
  Item item{.kind = Item::Kind::check, .name = finding.check, .subject = finding.subject, .statement = finding.statement};
  item.remedy = finding.remedy + (finding.needs_reboot ? " (needs a reboot)" : "");
  const bool is_wanted = is_required(evidence, Requirement::Kind::check, finding.check);
  const bool is_bad = finding.verdict == Verdict::fail || (finding.verdict == Verdict::warn && (is_wanted || evidence.is_strict));
  item.state = is_bad ? State::unfit : finding.verdict == Verdict::unknown ? State::unknown : State::fit;
  item.gravity = kFailedCheck;
  item.is_warning = finding.verdict == Verdict::warn && !is_bad;
  // A file that cannot be read decides nothing where the bytes that it is about were seen to arrive, nor does a pair of GPU and NIC
  // that there was no time for. A probe that could not be made, or a check that did not begin, is another matter.
  if (item.state == State::unknown) {
    const bool is_probe =
        (finding.check.starts_with("probe.") || finding.check == kNothing) && finding.statement != gigabar::doctor::kPairLeftOut;
    item.is_decisive = is_wanted || evidence.is_strict || is_probe || finding.statement == gigabar::doctor::kNotBegun ||
                       evidence.device_count == 0;
  }
  const auto is_meant = [&](const std::string& ignored) { return is_of(finding.check, ignored); };
  if (!is_wanted && std::ranges::any_of(evidence.ignored, is_meant)) item.is_decisive = false;
  name_devices(evidence.examination.topology, item);
  return item;
}

// What the doctor found of one of the path's devices that makes it slow; null: nothing.
const Finding* cause_of(const Evidence& evidence, const Item& item) {
  for (const char* const check : kCauses) {
    for (const Finding& finding : evidence.examination.findings) {
      if (finding.check != check || (finding.verdict != Verdict::fail && finding.verdict != Verdict::warn)) continue;
      const auto is_named = [&finding](const std::string& gpu) { return finding.subject.find(gpu) != std::string::npos; };
      if (finding.subject.empty() || std::ranges::any_of(item.gpus, is_named)) return &finding;
    }
  }
  return nullptr;
}

void judge_error(const ErrorRecord& error, bool is_asked_for, Item& item) {
  const std::string statement = (error.object.empty() ? "" : error.object + ": ") + error.cause;
  const auto remedy_or = [&error](const char* otherwise) { return error.remedy.empty() ? std::string(otherwise) : error.remedy; };
  switch (error.status) {
    case Status::verification_failed:
      item.gravity = kWrongBytes;
      return item.say(State::unfit, "wrong bytes arrived: " + error.cause,
                      "do not use this path: check ACS redirection, the IOMMU's mode and the GPU's memory ('gigabar explain "
                      "pci.acs', 'gigabar explain iommu.mode', 'gigabar explain gpu.ecc')");
    case Status::device_error:
    case Status::timed_out:
      item.gravity = kFailed;
      return item.say(State::unfit, statement, remedy_or("look for Xid lines in the kernel's log (dmesg), and reset the GPU"));
    case Status::not_supported:  // the machine does not have this path, which is a fault only where a job needs it
    case Status::unavailable:
      item.gravity = kRequirement;
      return item.say(is_asked_for ? State::unfit : State::fit, statement, error.remedy);
    default:
      item.say(State::unknown, statement, remedy_or("free the GPU's memory, or run this while no job uses the GPU, as root"));
  }
}

void judge_rate(const Evidence& evidence, const Path& path, Item& item) {
  const Bound bound = bound_of(path, evidence.criteria);
  const std::string share = path.share() > 0 ? fmt::format(", {:.0f} % of {}", path.share() * 100, path.link.name) : "";
  std::string statement = fmt::format("{}{:.1f} GB/s{}", path.is_verified ? "verified bytes at " : "", path.rate(), share);
  if (bound.gb_per_s <= 0) {
    // Bytes that arrive whole are what can be said; a rate that was asked for cannot.
    return item.say(bound.is_required ? State::unknown : State::fit, statement + "; " + bound.because,
                    bound.is_required ? "require a rate in GB/s, as in host->gpu>=40GB/s" : "");
  }
  if (path.rate() >= bound.gb_per_s) return item.say(State::fit, statement, "");
  statement += fmt::format(", where {:.1f} are expected ({})", bound.gb_per_s, bound.because);
  item.gravity = kSlow;
  if (const Finding* const cause = cause_of(evidence, item))
    return item.say(State::unfit, fmt::format("{}; {}: {}", statement, cause->check, cause->statement), cause->remedy);
  item.say(State::unfit, statement,
           path.kind == "gpu->gpu" ? "look at the links between the two ('gigabar topology --routes', 'nvidia-smi nvlink -s')"
                                   : "look at the GPU's PCIe link ('gigabar doctor --only pci,probe.link')");
}

Item item_of(const Evidence& evidence, const Path& path) {
  Item item{.kind = Item::Kind::path, .name = path.name, .subject = path.subject, .path = &path};
  name_devices(evidence.examination.topology, item);
  if (item.gpus.empty()) {  // stand-ins have no address
    for (const int end : {path.source, path.destination}) {
      if (end != StreamPlace::kHost) item.gpus.push_back(std::to_string(end));
    }
  }
  if (!path.was_run) {
    item.say(State::unknown, "not measured: the time was over", "give more time with --budget");
  } else if (path.error) {
    judge_error(*path.error, is_required(evidence, Requirement::Kind::rate, path.kind), item);
  } else if (!path.is_verified || path.rate() <= 0) {
    item.say(State::unknown, "no copy was finished and compared in its time",
             "give more time with --budget, or run this while the node is idle");
  } else {
    judge_rate(evidence, path, item);
  }
  // Wrong bytes are wrong whatever else runs; everything else may be the other work's doing.
  if (item.state == State::unfit && item.gravity != kWrongBytes && !path.load.empty()) {
    item.say(State::unknown, item.statement + "; other work uses the path: " + path.load,
             "run this again when that work has ended");
  }
  return item;
}

State worse(State one, State other) {
  if (one == State::unfit || other == State::unfit) return State::unfit;
  return one == State::unknown ? one : other;
}

void judge_count(const Evidence& evidence, const Requirement& requirement, Item& item) {
  const Topology& topology = evidence.examination.topology;
  const auto compare = [&](double found, const std::string& what, const char* remedy) {
    item.say(found >= requirement.least ? State::fit : State::unfit,
             fmt::format("{} where {:.0f} are required", what, requirement.least), remedy);
  };
  constexpr const char* kMissing = "'gigabar doctor --only drv' tells why a GPU is missing";
  if (requirement.name == "gpus") {
    const std::size_t count = evidence.device_count > 0 ? evidence.device_count : topology.gpus.size();
    compare(static_cast<double>(count), counted(count, "GPU"), kMissing);
  } else if (requirement.name == "nics") {
    const auto is_active = [](const Nic& nic) {
      return !nic.rdma_device.empty() && std::ranges::find(nic.ports, "ACTIVE", &RdmaPort::state) != nic.ports.end();
    };
    const auto count = static_cast<std::size_t>(std::ranges::count_if(topology.nics, is_active));
    compare(static_cast<double>(count), counted(count, "NIC") + " with an active RDMA port",
            "'gigabar doctor --only rdma' tells what brings a port up");
  } else if (topology.gpus.empty()) {
    item.say(State::unfit, "no GPU was found that could have NVLinks", kMissing);
  } else {
    const Gpu& fewest = *std::ranges::min_element(topology.gpus, {}, &Gpu::nvlinks_active);
    item.subject = "GPU " + fewest.address.to_string();
    item.gpus = {fewest.address.to_string()};
    compare(fewest.nvlinks_active, fmt::format("{} of {} NVLinks are active", fewest.nvlinks_active, fewest.nvlinks_total),
            "'gigabar explain nvlink' tells what brings a link up");
  }
}

void judge_available(const Evidence& evidence, const Requirement& requirement, Item& item) {
  item.say(State::unfit, "this machine does not have it", "");
  for (const PathReport& path : evidence.availability) {
    if (!is_of(path.path, requirement.name)) continue;
    const bool is_untold = path.availability.code == AvailabilityCode::driver_unknown;
    if (!path.availability.is_ok() && !is_untold && item.state == State::unknown) continue;
    item.say(path.availability.is_ok() ? State::fit
             : is_untold               ? State::unknown
                                       : State::unfit,
             fmt::format("{}: {}", path.path, path.availability.reason), path.availability.remedy);
    if (item.state == State::fit) return;
  }
}

// Of checks and paths, which are items themselves: the worst of those that it is about.
void judge_by_items(const Requirement& requirement, const std::vector<Item>& items, Item& item) {
  std::size_t count = 0, bad = 0;
  const Item* first = nullptr;
  const bool is_rate = requirement.kind == Requirement::Kind::rate;
  for (const Item& each : items) {
    const bool is_meant = is_rate ? each.path != nullptr && each.path->kind == requirement.name
                                  : each.kind == Item::Kind::check && is_of(each.name, requirement.name);
    if (!is_meant) continue;
    ++count;
    item.state = worse(item.state, each.state);
    if (each.state == State::fit) continue;
    ++bad;
    if (first == nullptr || (first->state == State::unknown && each.state == State::unfit)) first = &each;
  }
  const std::string what = is_rate ? "path" : "finding";
  item.statement = fmt::format("{} of {} do not meet it", bad, counted(count, what));
  if (first != nullptr) {
    item.subject = first->subject;
    item.gpus = first->gpus;
    item.nics = first->nics;
    item.remedy = first->remedy;
    item.statement += fmt::format("; {}: {}", first->name, first->statement);
  } else if (count == 0) {
    item.say(State::unknown, is_rate ? "no such path was measured" : "it was not examined",
             is_rate ? "run this on the machine itself, with its GPUs" : "give more time with --budget");
  }
}

bool says_nothing(const Evidence& evidence, const Requirement& requirement) {
  return std::ranges::all_of(evidence.examination.findings, [&](const Finding& finding) {
    return !is_of(finding.check, requirement.name) || finding.verdict == Verdict::skip;
  });
}

Item item_of(const Evidence& evidence, const Requirement& requirement, const std::vector<Item>& items) {
  Item item{.kind = Item::Kind::requirement, .name = requirement.text, .gravity = kRequirement};
  switch (requirement.kind) {
    case Requirement::Kind::count: judge_count(evidence, requirement, item); break;
    case Requirement::Kind::available: judge_available(evidence, requirement, item); break;
    case Requirement::Kind::rate: judge_by_items(requirement, items, item); break;
    case Requirement::Kind::check:
      judge_by_items(requirement, items, item);
      if (item.state == State::fit && says_nothing(evidence, requirement)) {
        item.say(State::unfit, "it does not apply to this machine, which does not have what it is about", "");
      }
  }
  if (item.state == State::fit) item.remedy.clear();
  return item;
}

// The one device that is in all of several paths with the same fault, when it is one.
std::string common_device(const std::vector<Item>& items, const Item& worst) {
  std::vector<std::string> common = worst.gpus;
  std::size_t paths = 0;
  for (const Item& item : items) {
    if (item.path == nullptr || item.state != worst.state || item.gravity != worst.gravity) continue;
    ++paths;
    std::erase_if(common, [&](const std::string& gpu) { return std::ranges::find(item.gpus, gpu) == item.gpus.end(); });
  }
  return paths > 1 && common.size() == 1 ? common.front() : "";
}

std::string problem_line(const std::vector<Item>& items, State state) {
  std::vector<const Item*> bad;
  for (const Item& item : items) {
    if (item.state == state && item.is_decisive) bad.push_back(&item);
  }
  const Item& worst = **std::ranges::min_element(bad, {}, &Item::gravity);
  std::string subject = worst.subject;
  if (worst.path != nullptr) {
    const std::string common = common_device(items, worst);
    if (!common.empty()) subject = (worst.subject.starts_with("GPU") ? "GPU " : "device ") + common;
  }
  std::string line =
      fmt::format("{}: {}{}{}: {}", name_of(state), subject, subject.empty() ? "" : ": ", worst.name, worst.statement);
  if (!worst.remedy.empty()) line += "; " + worst.remedy;
  if (bad.size() > 1) line += fmt::format(" (and {} more)", bad.size() - 1);
  return line;
}

std::string fit_line(const Evidence& evidence, const std::vector<Item>& items) {
  const auto is_verified = [](const Item& item) { return item.path != nullptr && item.path->is_verified; };
  const auto verified = static_cast<std::size_t>(std::ranges::count_if(items, is_verified));
  const auto unread = std::ranges::count(items, State::unknown, &Item::state);
  std::string line = "fit: ";
  if (evidence.device_count > 0)
    line += fmt::format("{}, verified bytes on {}, ", counted(evidence.device_count, "GPU"), counted(verified, "path"));
  line += fmt::format("{}, none of which is a FAIL", counted(evidence.examination.findings.size(), "finding"));
  if (unread > 0) line += fmt::format("; {} could not be read", unread);
  return line;
}

}  // namespace

Judgement judge(const Evidence& evidence) {
  Judgement judgement;
  std::vector<Item>& items = judgement.items;
  for (const Finding& finding : evidence.examination.findings) items.push_back(item_of(evidence, finding));
  for (const Path& path : evidence.paths) items.push_back(item_of(evidence, path));
  if (evidence.not_measured) items.push_back(*evidence.not_measured);
  std::vector<Item> required;
  for (const Requirement& requirement : evidence.criteria.requirements) required.push_back(item_of(evidence, requirement, items));
  std::move(required.begin(), required.end(), std::back_inserter(items));
  for (const Item& item : items) {
    if (item.is_decisive) judgement.state = worse(judgement.state, item.state);
  }
  judgement.line = plain(judgement.state == State::fit ? fit_line(evidence, items) : problem_line(items, judgement.state));
  return judgement;
}

// --- The forms of the answer ----------------------------------------------------------------------------------------------------

namespace {

constexpr std::array<Named<Item::Kind>, 3> kKinds = {
    {{Item::Kind::check, "check"}, {Item::Kind::path, "path"}, {Item::Kind::requirement, "requirement"}}};

// As Node Problem Detector has them: 0 good, 1 bad, 2 unknown.
int number_of(State state) { return static_cast<int>(state); }

// The value of a label: backslash, quotation mark and line end are escaped.
std::string label_text(std::string_view value) { return replaced(plain(value, 200), {{'\\', "\\\\"}, {'"', "\\\""}}); }

// One family of metrics: its head, and a row for each set of labels, each set once.
class Family {
 public:
  Family(std::string name, std::string_view unit, std::string_view help) : name_("gigabar_preflight_" + std::move(name)) {
    text_ = fmt::format("# TYPE {} gauge\n", name_);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name_, unit);
    text_ += fmt::format("# HELP {} {}\n", name_, help);
  }
  Family& add(const std::vector<std::pair<std::string_view, std::string>>& labels, double value) {
    std::string set;
    for (const auto& [label, text] : labels) set += fmt::format("{}{}=\"{}\"", set.empty() ? "" : ",", label, label_text(text));
    if (!seen_.insert(set).second) return *this;
    text_ += fmt::format("{}{} {}\n", name_, set.empty() ? "" : "{" + set + "}", value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
  std::set<std::string> seen_;
};

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, " ")); }

void print_problem(Report& report, const Item& item) {
  report.print("  {:<8} {}{}{}: {}\n", item.is_warning ? "warning" : name_of(item.state), item.name,
               item.subject.empty() ? "" : ": ", plain(item.subject), plain(item.statement));
  if (!item.remedy.empty()) report.print("           remedy: {}\n", plain(item.remedy));
}

}  // namespace

int exit_status_of(State state, Format format, bool is_strict) {
  if (state == State::fit) return 0;
  if (state == State::unfit) return kExitFailed;
  if (format == Format::npd) return 2;
  if (format == Format::nhc) return is_strict ? kExitFailed : 0;
  return kExitUnknown;
}

void print_table(Report& report, const Judgement& judgement) {
  report.print("{}{}\n", judgement.line, stand_in_label(report.is_stand_in()));
  const auto print_those = [&](const char* heading, const auto& is_meant) {
    bool is_first = true;
    for (const State state : {State::unfit, State::unknown, State::fit}) {
      for (const Item& item : judgement.items) {
        if (item.state != state || !is_meant(item)) continue;
        if (std::exchange(is_first, false)) report.print("\n{}\n", heading);
        print_problem(report, item);
      }
    }
  };
  const auto is_fit = [](const Item& item) { return item.state == State::fit; };
  print_those("what decides", [&](const Item& item) { return !is_fit(item) && item.is_decisive; });
  print_those("what does not count", [&](const Item& item) { return !is_fit(item) && !item.is_decisive; });
  print_those("what works, slower or less than it could", [](const Item& item) { return item.is_warning; });
  bool is_first = true;
  for (const Item& item : judgement.items) {
    if (item.path == nullptr || item.state != State::fit) continue;
    if (std::exchange(is_first, false)) report.heading("paths that are fit");
    report.print("  {:<16} {}\n", item.name, plain(item.statement));
  }
}

Json to_json(const Item& item) {
  Json json = {{"kind", name_in(kKinds, item.kind)},
               {"name", plain(item.name)},
               {"subject", plain(item.subject)},
               {"state", name_of(item.state)},
               {"is_decisive", item.is_decisive},
               {"is_warning", item.is_warning},
               {"statement", plain(item.statement)},
               {"remedy", plain(item.remedy)},
               {"gpus", item.gpus},
               {"nics", list_of(item.nics, [](const std::string& name) { return Json(plain(name)); })}};
  if (item.path == nullptr) return json;
  const Path& path = *item.path;
  json["is_verified"] = path.is_verified;
  json["gb_per_s"] = positive_or_null(path.rate());
  json["link"] = path.link.name;
  json["link_gb_per_s"] = positive_or_null(path.link.gb_per_s);
  json["share_of_link"] = positive_or_null(path.share());
  json["how"] = path.path;
  json["load"] = plain(path.load);
  return json;
}

std::string metrics_text(const Judgement& judgement, const Metrics& metrics) {
  Family verdict("verdict", "", "The answer: 1 for the one that holds.");
  for (const auto& [state, name] : kStates) verdict.add({{"verdict", std::string(name)}}, judgement.state == state);
  Family checks("check_state", "", "The worst finding of each check that counts: 0 fit, 1 unfit, 2 unknown.");
  Family problems("problem", "", "What is not fit and counts, with its devices: 1 unfit, 2 unknown.");
  Family rates("path_bytes_per_second", "bytes_per_second", "Rate of the verified bytes on a path.");
  Family shares("path_utilization_ratio", "ratio", "That rate over the theoretical rate of the link.");
  std::map<std::string, State> worst;  // of checks and requirements
  for (const Item& item : judgement.items) {
    const bool is_path = item.path != nullptr;
    const bool is_problem = item.is_decisive && item.state != State::fit;
    const std::string gpus = joined(item.gpus);
    if (item.kind != Item::Kind::path) {
      State& state = worst.try_emplace(item.name, State::fit).first->second;
      if (is_problem && state != State::unfit) state = item.state;
    }
    if (is_problem) {
      problems.add(
          {{"check", is_path ? "" : item.name}, {"gpu", gpus}, {"nic", joined(item.nics)}, {"path", is_path ? item.name : ""}},
          number_of(item.state));
    }
    if (!is_path || !item.path->is_verified) continue;
    rates.add({{"path", item.name}, {"gpu", gpus}}, item.path->rate() * 1e9);
    if (item.path->share() > 0) shares.add({{"path", item.name}, {"gpu", gpus}}, item.path->share());
  }
  for (const auto& [name, state] : worst) checks.add({{"check", name}}, number_of(state));
  Family stand_in("stand_in", "", "1 where host memory played the GPUs, whose rates say nothing about one.");
  Family seconds("duration_seconds", "seconds", "How long the whole run took.");
  Family time("time_seconds", "seconds", "When it ended, since 1970.");
  return verdict.text() + checks.text() + problems.text() + rates.text() + shares.text() +
         stand_in.add({}, metrics.is_stand_in).text() + seconds.add({}, metrics.elapsed_seconds).text() +
         time.add({}, metrics.time_seconds).text() + "# EOF\n";
}

}  // namespace gigabar::tool::preflight
