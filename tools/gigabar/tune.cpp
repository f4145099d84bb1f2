// SPDX-License-Identifier: Apache-2.0
// gigabar tune: measures between two ranks where one path should end and the next begin, and stores it where every fabric of this
// machine looks for it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "fabric/tuning.hpp"
#include "gigabar/device.hpp"
#include "platform/stored_json.hpp"
#include "ranks/plan.hpp"
#include "ranks/tune_measure.hpp"
#include "support/option_checks.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool {
namespace ranks {
namespace {

constexpr Tag kWordTag = 12;
constexpr std::size_t kMaxWordBytes = std::size_t{1} << 18;
constexpr const char* kNoPlace = "there is no home and no cache folder to store in; give a file, as in --store=FILE";

// What both ranks work with, settled from the command line alone.
struct TunePlan {
  TuneOptions options;
  Plan plan;  // of the buffers
};

TunePlan make_tune_plan(const TuneOptions& options) {
  TunePlan tune{options, {}};
  Plan& plan = tune.plan;
  plan.options.measure = Measure::latency;
  plan.options.kind = Kind::write;
  if (options.accelerator != "cuda" && options.accelerator != "host") {
    refuse_usage(fmt::format("--accelerator {}: this is no kind of device; choose cuda or host", options.accelerator));
  }
  plan.first_place = plan.second_place = options.accelerator == "cuda" ? Place::device : Place::host;
  plan.range =
      settle_range("-m", options.sizes, {.usual = {1024, std::uint64_t{4} << 20}, .unit = 1, .most = std::uint64_t{256} << 20});
  plan.sizes = sizes_of(plan.range);
  plan.fabric = fabric_options(options.fabric);
  // Smaller chunks are tried one by one in staging memory for the largest.
  if (!plan.fabric.limits.chunk_bytes) plan.fabric.limits.chunk_bytes = kMaxTriedChunkBytes;
  return tune;
}

// Why each setting was not measured; a reason that several have is said once.
std::string reasons_of(const std::vector<Finding>& findings) {
  std::vector<std::pair<std::string, std::string>> names_of_reasons;
  for (const Finding& finding : findings) {
    const auto known = std::find_if(names_of_reasons.begin(), names_of_reasons.end(),
                                    [&finding](const auto& each) { return each.second == finding.why_not; });
    if (known == names_of_reasons.end()) {
      names_of_reasons.emplace_back(name_of(finding.what), finding.why_not);
    } else {
      known->first += fmt::format(", {}", name_of(finding.what));
    }
  }
  std::string text;
  for (const auto& [names, reason] : names_of_reasons) text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", names, reason);
  return text;
}

std::string storing_path(const StoreOptions& wanted) {
  return wanted.path.empty() ? fabric::tuning_path(machine_fingerprint()) : wanted.path;
}

// What one rank has measured.
struct Told {
  std::vector<Finding> findings;
  std::string stored, why_not_stored;
};

class TuneSession : public RankSession {
 public:
  TuneSession(const TunePlan& tune, const Invocation& invocation)
      : RankSession("tune", checked(tune.options), tune.plan.fabric, invocation), tune_(tune), clock_(SampleClock::calibrate()) {}

  void run() override {
    join();
    make_buffers();
    require(fabric().connect(partner(), timeout()));
    const Json own = introduction();
    const Json other = exchange_introductions(own);
    if (report() != nullptr) print_titles(own, other);
    drive_or_answer(0, own);
    // The other side is a pair of its own where its GPU, its rails or its host are others.
    if (own["machine"] != other["machine"] || own["key"] != other["key"]) drive_or_answer(1, rank() == 1 ? own : other);
    leave({kSegment}, timeout());
    if (!failure_.empty()) fail(failure_);
  }

 private:
  Rank partner() const noexcept { return 1 - rank(); }

  // Rank 0 stores what it measures; whether the other one does too is known later.
  static TuneOptions checked(TuneOptions options) {
    if (options.stored.is_wanted && rank_by_environment() == "0") {
      const std::string path = storing_path(options.stored);
      if (path.empty()) fail(kNoPlace);
      require_storable("--store", path);
    }
    return options;
  }

  void make_buffers() {
    // The fabric's own device: what is stored is for it, also where host memory was measured.
    device_ = device_of(fabric().device());
    const auto buffers = std::make_shared<Buffers>(tune_.plan, tune_.plan.first_place, device_);
    registered_ = buffers;
    buffers_ = buffers.get();
    require(fabric().register_segment(kSegment, buffers_->address(), buffers_->bytes()));
  }

  // --- Words between the two ranks -----------------------------------------------------------------------------------------------

  void send_word(const Json& word) {
    const std::string text = dump(word);
    require(fabric().send(partner(), kWordTag, text.data(), text.size(), timeout()));
  }

  Json take_word() {
    std::string text(kMaxWordBytes, '\0');
    const Received received = take(fabric().recv(partner(), kWordTag, text.data(), text.size(), timeout()));
    Json word = Json::parse(text.data(), text.data() + received.bytes, nullptr, false);
    if (!word.is_object()) fail("the other rank has sent something else than what it measured");
    return word;
  }

  fabric::TunedKey key() {
    fabric::TunedKey found;
    found.device = fabric::tuned_device_name(device_.index);
    for (const PeerState& peer : fabric().peers()) {
      if (peer.rank != partner() || !peer.transport) continue;
      found.transport = *peer.transport;
      if (*peer.transport == TransportKind::verbs) found.rails = peer.rails;
      found.is_same_host = peer.is_same_host;
    }
    return found;
  }

  Json introduction() {
    return {{"host", introduction_of({})["host"]},
            {"machine", machine_fingerprint().digits()},
            {"key", key().to_text()},
            {"sizes", tune_.plan.sizes},
            {"iterations", tune_.options.iteration_count},
            {"warm_up", tune_.options.warm_up_count},
            {"is_stored", tune_.options.stored.is_wanted}};
  }

  // Ranks that were started with different options would wait for each other in vain.
  Json exchange_introductions(const Json& own) {
    send_word(own);
    Json other = take_word();
    for (const char* const name : {"sizes", "iterations", "warm_up", "is_stored"}) {
      if (!other.contains(name) || other[name] != own[name])
        refuse_usage("the ranks were started with different options; give both the same");
    }
    for (const char* const name : {"host", "machine", "key"}) {
      if (!other.contains(name) || !other[name].is_string())
        fail("the other rank has introduced itself with something else than it should");
    }
    return other;
  }

  // --- Measuring and storing -----------------------------------------------------------------------------------------------------

  void drive_or_answer(Rank driver, const Json& driver_facts) {
    TuneMeasurement measurement(fabric(), *buffers_, tune_.options, clock_, tune_.plan.sizes);
    if (rank() != driver) {
      if (report() != nullptr) report()->show_progress("rank {} measures", driver);
      measurement.answer(driver);
      if (report() != nullptr) tell(driver, driver_facts, take_told());
      return;
    }
    Told told;
    told.findings = measurement.drive(1 - driver, [this](const std::string& what) {
      if (report() != nullptr) report()->show_progress("{}", what);
    });
    store(told);
    if (report() != nullptr) return tell(driver, driver_facts, told);
    send_word({{"findings", findings_json(told)}, {"stored", told.stored}, {"why_not_stored", told.why_not_stored}});
  }

  static Json findings_json(const Told& told) {
    return list_of(told.findings, [](const Finding& finding) { return to_json(finding); });
  }

  Told take_told() {
    const Json word = take_word();
    Told told{{}, word.value("stored", std::string()), word.value("why_not_stored", std::string())};
    for (const Json& each : word.value("findings", Json::array())) {
      auto finding = finding_from(each);
      if (!finding) fail("the other rank has sent something else than what it measured");
      told.findings.push_back(std::move(*finding));
    }
    return told;
  }

  void store(Told& told) {
    fabric::TunedPair pair;
    pair.key = key();
    pair.date = stored::date_now();
    bool has_any = false;
    for (const Finding& finding : told.findings) {
      has_any |= finding.bytes.has_value();
      if (finding.what == Tuned::chunk) pair.chunk_bytes = finding.bytes;
      if (finding.what == Tuned::gdr_limit) pair.gdr_bytes = finding.bytes;
      if (finding.what == Tuned::gdr_read_limit) pair.gdr_read_bytes = finding.bytes;
      if (finding.what == Tuned::stripe) pair.stripe_bytes = finding.bytes;
    }
    const StoreOptions& wanted = tune_.options.stored;
    const std::string path = storing_path(wanted);
    if (!has_any) {
      failure_ = told.why_not_stored = "nothing could be measured: " + reasons_of(told.findings);
    } else if (!wanted.is_wanted) {
      told.why_not_stored = "--no-store";
    } else if (path.empty()) {
      failure_ = told.why_not_stored = kNoPlace;
    } else if (const Result<void> done = fabric::store_tuned(path, machine_fingerprint(), pair); !done) {
      failure_ = told.why_not_stored = done.message();
    } else {
      told.stored = path;
    }
  }

  // --- What is printed -----------------------------------------------------------------------------------------------------------

  void print_titles(const Json& own, const Json& other) {
    if (tune_.plan.first_place == Place::device) report()->set_device(device_);
    report()->set_clock(clock_);
    report()->print("# ranks: 0 at {}, 1 at {}\n", own["host"].get<std::string>(), plain(other["host"].get<std::string>()));
    report()->document()["settings"] = settings_json();
    report()->document()["samples"] = {{"iterations", tune_.options.iteration_count}, {"warm_up", tune_.options.warm_up_count}};
  }

  void tell(Rank driver, const Json& driver_facts, const Told& told) {
    const std::string pair = text_of(driver_facts, "key");
    report()->print("\nrank {}: {}{}\n", driver, pair, stand_in_label(report()->is_stand_in()));
    for (const Finding& finding : told.findings) tell(finding);
    report()->print("{}{}\n", told.stored.empty() ? "not stored: " : "stored in ",
                    plain(told.stored.empty() ? told.why_not_stored : told.stored));
    report()->add_result({{"rank", driver},
                          {"pair", pair},
                          {"findings", findings_json(told)},
                          {"stored", text_or_null(told.stored)},
                          {"why_not_stored", told.why_not_stored}});
  }

  void tell(const Finding& finding) {
    const std::string_view name = name_of(finding.what);
    report()->end_table();
    report()->print("\n");
    if (!finding.bytes) {
      report()->print("{}: not measured: {}\n", name, plain(finding.why_not));
      return;
    }
    for (std::size_t i = 0; i < finding.sizes.size(); ++i) {
      Row row;
      row.show("size", bytes_text(finding.sizes[i]), "{:>8}");
      const Curve* best = &finding.curves.front();
      for (const Curve& curve : finding.curves) {
        const double us = curve.median_us[i];
        row.show(plain(curve.name) + " us", us, us < 100 ? "{:.2f}" : "{:.1f}");
        if (us < best->median_us[i]) best = &curve;
      }
      report()->print_row(row.show("best", plain(best->name), "{:<}"));
    }
    if (finding.crossover_bytes) report()->print("the curves cross at about {:.0f} bytes\n", *finding.crossover_bytes);
    const std::string limit = *finding.bytes >= kUnlimitedBytes ? "unlimited" : bytes_text(*finding.bytes);
    report()->print("{}: {}: {}\n", name, limit, plain(finding.why));
  }

  const TunePlan tune_;
  const SampleClock clock_;
  Buffers* buffers_ = nullptr;
  DeviceInfo device_;
  std::string failure_;
};

}  // namespace
}  // namespace ranks

void add_tune(const Command& program, Invocation& invocation) {
  const auto [command, options] = ranks::add_pair_command<ranks::TuneSession, ranks::TuneOptions>(
      program, invocation, "tune", "Measure the size limits between the paths of two ranks, and store them", ranks::make_tune_plan);
  command->add_option("--accelerator", options.accelerator, "Memory of both ranks: cuda (stand-ins where there is no GPU), or host")
      ->type_name("cuda|host")
      ->capture_default_str();
  command->add_option("-d", options.accelerator)->group("");  // its old name
  command->add_option("-m,--message-size", options.sizes, "Sizes: doubled from MIN to MAX")
      ->type_name("[MIN:]MAX")
      ->default_str("1K:4M");
  command->add_option("-i,--iterations", options.iteration_count, whole_number(1, 1000000),
                      "Timed rounds per size; in each of them every way is taken once");
  command->add_option("-x,--warmup", options.warm_up_count, whole_number(0, 1000000), "Untimed rounds before the timed ones");
  add_store_options(command, options.stored);
  ranks::add_job_options(command, options);
  command->footer(
      "Ranks: two of mpirun, srun, torchrun or 'gigabar run'; started alone, the command starts its own on this host. Measured: "
      "the\n"
      "chunk of staged writes, gdr_limit, gdr_read_limit, and the size from which several rails pay. What an option gives is not\n"
      "measured. The file is that of --store, else GIGABAR_TUNING, else tuning-<machine>.json in $XDG_CACHE_HOME/gigabar or\n"
      "~/.cache/gigabar. Exit status: 0 measured, and stored unless --no-store; 1 nothing could be measured or stored; 2 the "
      "command\n"
      "line cannot be followed.");
}

}  // namespace gigabar::tool
