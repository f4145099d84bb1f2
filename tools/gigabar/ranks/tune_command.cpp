// SPDX-License-Identifier: Apache-2.0
#include "ranks/tune_command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/counted.hpp"
#include "fabric/tuning.hpp"
#include "gigabar/device.hpp"
#include "platform/stored_json.hpp"
#include "ranks/fabric_failure.hpp"
#include "ranks/fabric_settings.hpp"
#include "ranks/launcher.hpp"
#include "ranks/plan.hpp"
#include "ranks/start.hpp"
#include "ranks/words.hpp"
#include "support/plain_text.hpp"
#include "support/report.hpp"
#include "support/text_table.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr Tag kWordTag = 12;
constexpr std::size_t kMaxWordBytes = std::size_t{1} << 18;
constexpr SizeRange kDefaultSizes{1024, std::uint64_t{4} << 20};
constexpr std::uint64_t kMaxTunedBytes = std::uint64_t{256} << 20;

// What both ranks work with, settled from the command line alone.
struct TunePlan {
  const TuneOptions& options;
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
  plan.range = kDefaultSizes;
  if (!options.sizes.empty()) {
    const auto range = parse_size_range(options.sizes, kDefaultSizes);
    if (!range || range->least_bytes == 0 || range->most_bytes > kMaxTunedBytes) {
      refuse_usage(
          fmt::format("-m {}: this is no range of sizes; write MAX or MIN:MAX, MIN from 1 on and not above MAX, at most {} "
                      "bytes, as in 1K:4M",
                      options.sizes, kMaxTunedBytes));
    }
    plan.range = *range;
  }
  plan.sizes = sizes_of(plan.range);
  plan.fabric = fabric_options(options.fabric);
  // Smaller chunks are tried one by one in staging memory for the largest.
  if (!plan.fabric.limits.chunk_bytes) plan.fabric.limits.chunk_bytes = kMaxTriedChunkBytes;
  return tune;
}

std::string limit_word(std::uint64_t bytes) { return bytes >= kUnlimitedBytes ? "unlimited" : bytes_text(bytes); }

// Why each setting was not measured; a reason that several have is said once.
std::string reasons_of(const std::vector<Finding>& findings) {
  std::vector<std::pair<std::string, std::string>> names_of_reasons;
  for (const Finding& finding : findings) {
    const auto known = std::find_if(names_of_reasons.begin(), names_of_reasons.end(),
                                    [&finding](const auto& each) { return each.second == finding.why_not; });
    const std::string name(name_of(finding.what));
    if (known == names_of_reasons.end()) {
      names_of_reasons.emplace_back(name, finding.why_not);
    } else {
      known->first += ", " + name;
    }
  }
  std::string text;
  for (const auto& [names, reason] : names_of_reasons) text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", names, reason);
  return text;
}

std::string us_text(double us) { return us < 100 ? fmt::format("{:.2f}", us) : fmt::format("{:.1f}", us); }

constexpr const char* kNoPlace = "there is no home and no cache folder to store in; give a file, as in --store=FILE";

class TuneSession {
 public:
  TuneSession(const TunePlan& tune, const Invocation& invocation)
      : tune_(tune), fabric_(open(tune)), clock_(SampleClock::calibrate()) {
    if (rank() != 0) return;
    report_ = std::make_unique<Report>("tune", invocation, tune.options.json_path);
    report_->set_line_prefix("# ");
  }

  Rank rank() const noexcept { return fabric_.rank(); }

  Fabric& fabric() noexcept { return fabric_; }

  void run() {
    follow_cpus(fabric_);
    if (fabric_.rank_count() != 2) {
      refuse_usage(fmt::format("the job has {}, and tune is for exactly 2; start 2", counted(fabric_.rank_count(), "rank")));
    }
    make_buffers();
    await_ranks(fabric_, timeout());
    require_of_fabric(fabric_.connect(1 - rank(), timeout()));
    const Json own = card();
    const Json other = exchange_cards(own);
    if (report_) print_titles(own, other);
    drive_or_answer(0, own);
    // The other side is a pair of its own where its GPU, its rails or its host are others.
    if (own["machine"] != other["machine"] || own["key"] != other["key"]) drive_or_answer(1, rank() == 1 ? own : other);
    finish();
  }

 private:
  Timeout timeout() const noexcept { return tune_.options.fabric.timeout(); }

  // Rank 0 stores what it measures; whether the other one does too is known later.
  static Fabric open(const TunePlan& tune) {
    const StoreOptions& wanted = tune.options.stored;
    if (wanted.is_wanted && rank_by_environment() == "0") {
      if (storing_path(wanted).empty()) fail(kNoPlace);
      require_storable("--store", storing_path(wanted));
    }
    return open_fabric(tune.plan.fabric, tune.options.json_path);
  }

  void make_buffers() {
    // The fabric's own: what is stored is for its GPU, also where host memory was measured.
    const std::vector<DeviceInfo> found = take(devices());
    const std::string wanted = setting("device");
    const auto device =
        std::find_if(found.begin(), found.end(), [&](const DeviceInfo& each) { return std::to_string(each.index) == wanted; });
    if (device == found.end()) fail(fmt::format("device {}: this process has {}", wanted, counted(found.size(), "device")));
    device_ = *device;
    buffers_.emplace(tune_.plan, tune_.plan.first_place, *device_);
    require_of_fabric(fabric_.register_segment(kTuneSegment, buffers_->address(), buffers_->bytes()));
  }

  std::string setting(std::string_view name) const {
    for (const Setting& each : fabric_.settings()) {
      if (each.name == name) return each.value;
    }
    return {};
  }

  // --- Words between the two ranks -----------------------------------------------------------------------------------------------

  void send_word(const Json& word) {
    const std::string text = word.dump(-1, ' ', false, Json::error_handler_t::replace);
    require_of_fabric(fabric_.send(1 - rank(), kWordTag, text.data(), text.size(), timeout()));
  }

  Json take_word() {
    std::string text(kMaxWordBytes, '\0');
    const Received received = take_from_fabric(fabric_.recv(1 - rank(), kWordTag, text.data(), text.size(), timeout()));
    Json word = Json::parse(text.data(), text.data() + received.bytes, nullptr, false);
    if (!word.is_object()) fail("the other rank has sent something else than what it measured");
    return word;
  }

  fabric::TunedKey key() const {
    fabric::TunedKey found;
    found.device = fabric::tuned_device_name(device_->index);
    for (const PeerState& peer : fabric_.peers()) {
      if (peer.rank != 1 - rank() || !peer.transport) continue;
      found.transport = *peer.transport;
      if (*peer.transport == TransportKind::verbs) found.rails = peer.rails;
      found.is_same_host = peer.is_same_host;
    }
    return found;
  }

  Json card() const {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    return {{"host", plain(host.data())},
            {"machine", machine_fingerprint().digits()},
            {"key", key().to_text()},
            {"sizes", tune_.plan.sizes},
            {"iterations", tune_.options.iteration_count},
            {"warm_up", tune_.options.warm_up_count},
            {"is_stored", tune_.options.stored.is_wanted}};
  }

  // Ranks that were started with different options would wait for each other in vain.
  Json exchange_cards(const Json& own) {
    send_word(own);
    Json other = take_word();
    for (const char* const name : {"sizes", "iterations", "warm_up", "is_stored"}) {
      if (!other.contains(name) || other[name] != own[name])
        refuse_usage("the ranks were started with different options; give both the same");
    }
    for (const char* const name : {"host", "machine", "key"}) {
      if (!other.contains(name) || !other[name].is_string())
        fail("the other rank has introduced itself with something else than a card");
    }
    return other;
  }

  // --- Measuring and storing -----------------------------------------------------------------------------------------------------

  void drive_or_answer(Rank driver, const Json& card_of_driver) {
    TuneMeasurement measurement(fabric_, *buffers_, tune_.options, clock_, tune_.plan.sizes);
    if (rank() != driver) {
      if (report_) report_->show_progress("rank {} measures", driver);
      measurement.answer(driver);
      if (!report_) return;
      const Json word = take_word();
      std::vector<Finding> findings;
      for (const Json& each : word.value("findings", Json::array())) {
        auto finding = finding_from(each);
        if (!finding) fail("the other rank has sent something else than what it measured");
        findings.push_back(std::move(*finding));
      }
      tell(driver, card_of_driver, findings, word.value("stored", std::string()), word.value("why_not_stored", std::string()));
      return;
    }
    const std::vector<Finding> findings = measurement.drive(1 - driver, [this](const std::string& what) {
      if (report_) report_->show_progress("{}", what);
    });
    std::string stored, why_not_stored;
    store(findings, stored, why_not_stored);
    if (report_) {
      tell(driver, card_of_driver, findings, stored, why_not_stored);
      return;
    }
    Json list = Json::array();
    for (const Finding& finding : findings) list.push_back(to_json(finding));
    send_word({{"findings", std::move(list)}, {"stored", stored}, {"why_not_stored", why_not_stored}});
  }

  static std::string storing_path(const StoreOptions& wanted) {
    return wanted.path.empty() ? fabric::tuning_path(machine_fingerprint()) : wanted.path;
  }

  void store(const std::vector<Finding>& findings, std::string& stored, std::string& why_not_stored) {
    fabric::TunedPair pair;
    pair.key = key();
    pair.date = stored::date_now();
    bool has_any = false;
    for (const Finding& finding : findings) {
      has_any |= finding.bytes.has_value();
      if (finding.what == Tuned::chunk) pair.chunk_bytes = finding.bytes;
      if (finding.what == Tuned::gdr_limit) pair.gdr_bytes = finding.bytes;
      if (finding.what == Tuned::gdr_read_limit) pair.gdr_read_bytes = finding.bytes;
      if (finding.what == Tuned::stripe) pair.stripe_bytes = finding.bytes;
    }
    const MachineFingerprint machine = machine_fingerprint();
    const StoreOptions& wanted = tune_.options.stored;
    const std::string path = storing_path(wanted);
    if (!has_any) {
      failure_ = why_not_stored = "nothing could be measured: " + reasons_of(findings);
    } else if (!wanted.is_wanted) {
      why_not_stored = "--no-store";
    } else if (path.empty()) {
      failure_ = why_not_stored = kNoPlace;
    } else if (const Result<void> done = fabric::store_tuned(path, machine, pair); !done) {
      failure_ = why_not_stored = done.message();
    } else {
      stored = path;
    }
  }

  // --- What is printed -----------------------------------------------------------------------------------------------------------

  void print_titles(const Json& own, const Json& other) {
    if (tune_.plan.first_place == Place::device) report_->set_device(*device_);
    report_->set_clock(clock_);
    report_->print("# ranks: 0 at {}, 1 at {}\n", own["host"].get<std::string>(), plain(other["host"].get<std::string>()));
    Json settings = Json::array();
    for (const Setting& each : fabric_.settings()) {
      settings.push_back({{"name", each.name}, {"value", each.value}, {"source", each.source}});
    }
    report_->document()["settings"] = std::move(settings);
    report_->document()["samples"] = {{"iterations", tune_.options.iteration_count}, {"warm_up", tune_.options.warm_up_count}};
  }

  void tell(Rank driver, const Json& card_of_driver, const std::vector<Finding>& findings, const std::string& stored,
            const std::string& why_not_stored) {
    const std::string pair = plain(card_of_driver["key"].get<std::string>());
    report_->print("\nrank {}: {}{}\n", driver, pair, stand_in_label(report_->is_stand_in()));
    Json results = Json::array();
    for (const Finding& finding : findings) {
      tell(finding);
      results.push_back(to_json(finding));
    }
    if (stored.empty()) {
      report_->print("not stored: {}\n", plain(why_not_stored));
    } else {
      report_->print("stored in {}\n", plain(stored));
    }
    report_->add_result({{"rank", driver},
                         {"pair", pair},
                         {"findings", std::move(results)},
                         {"stored", stored.empty() ? Json() : Json(stored)},
                         {"why_not_stored", why_not_stored}});
  }

  void tell(const Finding& finding) {
    const std::string_view name = name_of(finding.what);
    if (!finding.bytes) {
      report_->print("\n{}: not measured: {}\n", name, plain(finding.why_not));
      return;
    }
    std::vector<TextTable::Column> columns = {{"size", false}};
    for (const Curve& curve : finding.curves) columns.push_back({plain(curve.name) + " us", false});
    columns.push_back({"best", true});
    TextTable table(columns);
    for (std::size_t i = 0; i < finding.sizes.size(); ++i) {
      std::vector<std::string> row = {bytes_text(finding.sizes[i])};
      const Curve* best = nullptr;
      for (const Curve& curve : finding.curves) {
        row.push_back(us_text(curve.median_us[i]));
        if (best == nullptr || curve.median_us[i] < best->median_us[i]) best = &curve;
      }
      row.push_back(best != nullptr ? plain(best->name) : "");
      table.add_row(std::move(row));
    }
    report_->print("\n{}", table.take_text());
    if (finding.crossover_bytes) report_->print("the curves cross at about {:.0f} bytes\n", *finding.crossover_bytes);
    report_->print("{}: {}: {}\n", name, limit_word(*finding.bytes), plain(finding.why));
  }

  void finish() {
    require_of_fabric(fabric_.barrier({}, timeout()));
    require_of_fabric(fabric_.deregister_segment(kTuneSegment, timeout()));
    require_of_fabric(fabric_.close(timeout()));
    if (report_) report_->write();
    if (!failure_.empty()) fail(failure_);
  }

  const TunePlan& tune_;
  std::optional<Buffers> buffers_;  // outlives the fabric, in which it is registered
  Fabric fabric_;
  SampleClock clock_;
  std::unique_ptr<Report> report_;  // at rank 0 only
  std::optional<DeviceInfo> device_;
  std::string failure_;
};

void run_rank(const TuneOptions& options, Invocation& invocation) {
  std::unique_ptr<TuneSession> session;
  try {
    const TunePlan tune = make_tune_plan(options);
    if (!is_under_launcher()) {
      run_local_ranks(2, "tune", invocation);
      return;
    }
    session = std::make_unique<TuneSession>(tune, invocation);
    session->run();
    session.reset();  // before the plan that it points to
  } catch (const CommandFailure& failure) {
    const bool is_bad_usage = failure.exit_status() == kExitBadUsage;
    if (session && session->rank() != 0 && is_bad_usage) let_rank_0_speak(session->fabric());
    end_rank(failure, session ? std::to_string(session->rank()) : rank_by_environment(), invocation);
  }
}

}  // namespace

void run_tune(const TuneOptions& options, Invocation& invocation) { run_rank(options, invocation); }

}  // namespace gigabar::tool::ranks
