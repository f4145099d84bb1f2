// SPDX-License-Identifier: Apache-2.0
#include "ranks/command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "gigabar/device.hpp"
#include "gigabar/fabric.hpp"
#include "ranks/buffers.hpp"
#include "ranks/exchange.hpp"
#include "ranks/fabric_failure.hpp"
#include "ranks/fabric_settings.hpp"
#include "ranks/launcher.hpp"
#include "ranks/results.hpp"
#include "ranks/start.hpp"
#include "ranks/table.hpp"
#include "ranks/words.hpp"
#include "support/clock.hpp"
#include "support/report.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr std::size_t kMaxSampleBytes = 9;        // of one, in CBOR
constexpr std::size_t kMaxRanksToIntroduce = 16;  // one line each

// One rank, from opening the fabric to closing it. Rank 0 speaks.
class Session {
 public:
  Session(const Plan& plan, const Invocation& invocation)
      : plan_(plan), fabric_(open_fabric(plan.fabric, plan.options.json_path)), clock_(SampleClock::calibrate()) {
    if (fabric_.rank() == 0)
      report_ = std::make_unique<Report>(command_of(plan.options.measure), invocation, plan.options.json_path);
    if (report_) report_->set_line_prefix("# ");
  }

  Rank rank() const noexcept { return fabric_.rank(); }

  Fabric& fabric() noexcept { return fabric_; }

  void run() {
    follow_cpus(fabric_);
    pair_count_ = pair_count_for(plan_.options, fabric_.rank_count());
    seat_ = seat_of(rank(), pair_count_);
    await_ranks(fabric_, timeout());
    require_agreement(fabric_, digest_of(plan_), timeout());
    make_buffers();
    if (!seat_.is_idle) require_of_fabric(fabric_.connect(seat_.partner, timeout()));
    if (report_) print_titles();
    introduce();
    if (report_) print_columns();
    Exchange exchange(fabric_, *buffers_, plan_, clock_, seat_);
    for (const std::uint64_t bytes : plan_.sizes) {
      if (report_)
        report_->show_progress("{}: {}", bytes_text(bytes), counted(counts_for(plan_.options, bytes).iterations, "round"));
      do_size(exchange, bytes);
    }
    finish();
  }

 private:
  Timeout timeout() const noexcept { return plan_.options.fabric.timeout(); }

  void make_buffers() {
    const Place place = seat_.is_active ? plan_.first_place : plan_.second_place;
    DeviceInfo device;
    if (place == Place::device) {
      const std::vector<DeviceInfo> found = take(devices());
      device = found[fabric_.local_rank() % found.size()];
      device_ = device;
    }
    buffers_.emplace(plan_, place, device);
    if (plan_.options.kind != Kind::send) {
      require_of_fabric(fabric_.register_segment(kSegment, buffers_->address(), buffers_->bytes()));
    }
    require_of_fabric(fabric_.barrier({}, timeout()));
  }

  // --- What rank 0 is told -------------------------------------------------------------------------------------------------------

  Json card() const {
    Json own = rank_card(fabric_, device_);
    own["partner"] = seat_.is_idle ? Json() : Json(seat_.partner);
    own["note"] = buffers_->note();
    return own;
  }

  void introduce() {
    const std::vector<std::string> texts = gather(fabric_, dump(card()), kMaxCardBytes, timeout());
    if (!report_) return;
    const std::vector<Json> cards = read_cards(texts);
    for (std::size_t i = 0; i < cards.size(); ++i) {
      has_stand_in_ |= is_stand_in_card(cards[i]);
      if (i >= kMaxRanksToIntroduce) continue;
      report_->print("# {}\n", introduction(i, cards[i]));
      const std::string note = text_of(cards[i], "note");
      if (!note.empty()) report_->note(fmt::format("rank {}: {}", i, note));
    }
    report_->document()["ranks"] = cards;
  }

  std::vector<Measurement> gather_measurements(const Measurement& own, std::uint64_t bytes) {
    const std::size_t most = kMaxCardBytes + counts_for(plan_.options, bytes).iterations * kMaxSampleBytes;
    const std::vector<std::string> texts = gather(fabric_, encode(own), most, patient_timeout(plan_, bytes));
    std::vector<Measurement> measurements;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      auto each = decode(texts[i]);
      if (!each) fail(fmt::format("rank {} has sent something else than its measurements", i));
      measurements.push_back(std::move(*each));
    }
    return measurements;
  }

  // --- What is printed -----------------------------------------------------------------------------------------------------------

  void print_titles() {
    report_->print("{}", title_lines(plan_, GIGABAR_VERSION, pair_count_));
    Json& document = report_->document();
    document["units"]["*_mb_per_s"] = "10^6 bytes per second";
    document["buffers"] = fmt::format("{} {}", letter_of(plan_.first_place), letter_of(plan_.second_place));
    if (device_) report_->set_device(*device_);
    report_->set_clock(clock_);
    tell_settings(*report_, fabric_);
  }

  void print_columns() {
    // set_device has said it of rank 0's.
    if (has_stand_in_ && !report_->is_stand_in())
      report_->note("stand-in: host memory plays a GPU, so the figures say nothing about one");
    report_->print("{}", column_line(plan_));
  }

  // --- Sizes ---------------------------------------------------------------------------------------------------------------------

  SizeResult measure(Exchange& exchange, std::uint64_t bytes, const std::optional<PathPolicy>& policy) {
    require_of_fabric(fabric_.barrier({}, timeout()));
    const Measurement own = exchange.measure(bytes, policy);
    const std::vector<Measurement> all = gather_measurements(own, bytes);
    if (!report_) return {};
    return combine(plan_, bytes, pair_count_, all);
  }

  // The fabric's policy without what only some machines have.
  PathPolicy plain_policy() const {
    PathPolicy policy = plan_.fabric.policy;
    for (const Setting& setting : fabric_.settings()) {
      if (setting.name == "bar") policy.bar = preference_of(setting.value);
      if (setting.name == "staged") policy.staged = preference_of(setting.value);
    }
    policy.gdr = policy.p2p = Preference::forbid;
    return policy;
  }

  static Preference preference_of(std::string_view name) {
    if (name == "prefer") return Preference::prefer;
    if (name == "require") return Preference::require;
    return name == "forbid" ? Preference::forbid : Preference::allow;
  }

  void do_size(Exchange& exchange, std::uint64_t bytes) {
    const SizeResult result = measure(exchange, bytes, {});
    std::optional<SizeResult> other;
    if (plan_.options.is_compared) other = measure(exchange, bytes, plain_policy());
    if (!report_) return;
    report_->print("{}", row(plan_, result, other ? &*other : nullptr));
    Json json = to_json(plan_, result);
    if (other) {
      json["without_gdr_p2p"] = to_json(plan_, *other);
      json["ratio"] = ratio_of(plan_.options.measure, result, *other);
    }
    report_->add_result(std::move(json));
    complain(result);
    if (other) complain(*other);
  }

  void complain(const SizeResult& result) {
    if (result.wrong_count == 0) return;
    report_->print("# DATA VALIDATION ERROR: {} (in {} of this size)\n", result.first_wrong, counted(result.wrong_count, "round"));
    if (first_wrong_.empty()) first_wrong_ = result.first_wrong;
  }

  void finish() {
    const FabricStatistics statistics = fabric_.statistics();
    Json peers = Json::array();
    for (const PeerState& peer : fabric_.peers()) {
      peers.push_back({{"rank", peer.rank},
                       {"transport", peer.transport ? Json(name_of(*peer.transport)) : Json()},
                       {"rails", peer.rails},
                       {"memory_bytes", peer.memory_bytes}});
    }
    require_of_fabric(fabric_.barrier({}, timeout()));
    if (plan_.options.kind != Kind::send) require_of_fabric(fabric_.deregister_segment(kSegment, timeout()));
    require_of_fabric(fabric_.close(timeout()));
    if (!report_) return;
    report_->document()["peers"] = std::move(peers);
    report_->document()["fabric"] = {{"operations", statistics.operations},
                                     {"messages", statistics.messages},
                                     {"staged_operations", statistics.staged_operations},
                                     {"refused_strangers", statistics.refused_strangers}};
    report_->write();
    if (!first_wrong_.empty()) fail("wrong data: " + first_wrong_);
  }

  const Plan& plan_;
  std::optional<Buffers> buffers_;  // outlives the fabric, in which it is registered
  Fabric fabric_;
  SampleClock clock_;
  std::unique_ptr<Report> report_;  // at rank 0 only
  std::uint32_t pair_count_ = 1;
  Seat seat_;
  std::optional<DeviceInfo> device_;
  bool has_stand_in_ = false;
  std::string first_wrong_;
};

// --- Starting --------------------------------------------------------------------------------------------------------------------

void run_rank(const Plan& plan, Invocation& invocation) {
  std::unique_ptr<Session> session;
  try {
    session = std::make_unique<Session>(plan, invocation);
    session->run();
  } catch (const CommandFailure& failure) {
    const std::string rank = session ? std::to_string(session->rank()) : rank_by_environment();
    if (session && rank != "0" && failure.exit_status() == kExitBadUsage) let_rank_0_speak(session->fabric());
    end_rank(failure, rank, invocation);
  }
}

}  // namespace

void run_command(const Options& options, Invocation& invocation) {
  Plan plan;
  try {
    plan = make_plan(options);
    if (!is_under_launcher()) {
      const unsigned pair_count = is_of_pairs(plan.options.measure) ? plan.options.pair_count.value_or(1) : 1;
      run_local_ranks(2 * pair_count, command_of(plan.options.measure), invocation);
      return;
    }
  } catch (const CommandFailure& failure) {
    end_rank(failure, rank_by_environment(), invocation);
    return;
  }
  run_rank(plan, invocation);
}

}  // namespace gigabar::tool::ranks
