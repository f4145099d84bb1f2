// SPDX-License-Identifier: Apache-2.0
#include "ranks/job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "base/counted.hpp"
#include "base/errors.hpp"
#include "base/fnv.hpp"
#include "fabric/job/job.hpp"
#include "fabric/job/launchers.hpp"
#include "fabric/placement.hpp"
#include "platform/cpu_set.hpp"
#include "run/launcher.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::ranks {
namespace {

constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;
constexpr std::uint64_t kMaxRails = 8;

constexpr std::array<Named<Preference PathPolicy::*>, 4> kPaths = {
    {{&PathPolicy::gdr, "gdr"}, {&PathPolicy::p2p, "p2p"}, {&PathPolicy::bar, "bar"}, {&PathPolicy::staged, "staged"}}};
constexpr std::array<Named<std::optional<RailPolicy>>, 3> kRailPolicies = {
    {{RailPolicy::first, "first"}, {RailPolicy::round_robin, "round_robin"}, {RailPolicy::fixed, "fixed"}}};

// A size, or "unlimited".
Value limit() {
  const Check check = [](std::string& text) -> std::string {
    const auto bytes = text == "unlimited" ? std::optional(kUnlimited) : parse_size(text);
    if (!bytes) return fmt::format("'{}' is not a limit; write bytes, a number with K, M or G, or 'unlimited'", text);
    if (*bytes > kUnlimited) return fmt::format("{} is more than any memory; write 'unlimited'", counted(*bytes, "byte"));
    text = std::to_string(*bytes);
    return {};
  };
  return {"BYTES", check};
}

Value path_name() {
  const Check check = [](std::string& text) -> std::string {
    const bool is_known = std::any_of(kPaths.begin(), kPaths.end(), [&](const auto& path) { return path.name == text; });
    return is_known ? std::string() : fmt::format("'{}' is no path; choose one of: gdr, p2p, bar, staged", text);
  };
  return {"gdr|p2p|bar|staged", check};
}

// Becomes the enumerator's digits for CLI11.
Value transport_name() {
  const Check check = [](std::string& text) -> std::string {
    for (const TransportKind kind : {TransportKind::local, TransportKind::verbs, TransportKind::tcp, TransportKind::ucx}) {
      if (!is_same_name(text, name_of(kind))) continue;
      text = std::to_string(static_cast<int>(kind));
      return {};
    }
    return unknown_name(text, {"local", "verbs", "tcp", "ucx"});
  };
  return {"LIST", check};
}

template <class T>
void add_list(const Command& command, const char* name, std::vector<T>& target, const Value& value, const std::string& help) {
  command.add_option(name, target, value, help)->delimiter(',')->allow_extra_args(false);
}

void apply(PathPolicy& policy, const std::vector<std::string>& names, Preference preference, std::string_view option) {
  for (const std::string& name : names) {
    const auto path = std::find_if(kPaths.begin(), kPaths.end(), [&name](const auto& each) { return each.name == name; });
    Preference& chosen = policy.*path->value;
    if (chosen != Preference::allow && chosen != preference) {
      refuse_usage(fmt::format("{} {}: another option says something else about the same path; give one of them", option, name));
    }
    chosen = preference;
  }
}

// --- A rank ---------------------------------------------------------------------------------------------------------------------

constexpr Tag kIntroductionTag = 3;
constexpr Tag kNothingTag = 4;                    // never sent
constexpr std::size_t kMaxRanksToIntroduce = 16;  // one line each

double seconds_of(Timeout timeout) noexcept { return static_cast<double>(timeout.ns()) * 1e-9; }

// "rank 3", "ranks 1, 2, 5 and 40 more".
std::string ranks_text(const std::vector<Rank>& ranks) {
  constexpr std::size_t kMaxNamed = 16;
  const std::size_t named = std::min(ranks.size(), kMaxNamed);
  const std::string more = ranks.size() > named ? fmt::format(" and {} more", ranks.size() - named) : "";
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(std::span(ranks).first(named), ", "), more);
}

// Ranks without a connection to this one, by what they lack.
using Absent = std::map<std::string, std::vector<Rank>>;

[[noreturn]] void fail_for(const Absent& absent, Rank rank_count, Timeout timeout) {
  const bool is_one = absent.size() == 1 && absent.begin()->second.size() == 1;
  const std::string causes = joined(absent, "; ", [rank_count](const auto& each) {
    return fmt::format("{} of {}: {}", ranks_text(each.second), rank_count, each.first);
  });
  fail(
      fmt::format("not every rank has come within {:g} s (--timeout): {}; look at what {} printed, and whether {} started with the "
                  "same MASTER_ADDR, MASTER_PORT and job key as rank 0",
                  seconds_of(timeout), causes, is_one ? "it" : "they", is_one ? "it was" : "they were"));
}

void connect_to_all(Fabric& fabric, Timeout timeout) {
  using Clock = std::chrono::steady_clock;
  // The connections that are made end themselves after the fabric's time, which is the same, and say then what they lack.
  const auto time = std::chrono::nanoseconds(timeout.ns()) + std::chrono::milliseconds(200);
  const auto begun_until = Clock::now() + time;
  // Each call serves all connections that are under way: where few of many ranks come there is no time to begin, or to look at,
  // all.
  Rank begun = 1;
  for (; begun < fabric.rank_count() && Clock::now() < begun_until; ++begun)
    static_cast<void>(fabric.connect(begun, Timeout::test()));
  const auto end = std::min(Clock::now(), begun_until) + time;  // of the last that was begun
  Absent absent;
  Result<void> failure;  // of a rank that came and is lost, maybe because it waited in vain for those that did not come
  bool is_over = false;
  for (Rank rank = 1; rank < fabric.rank_count(); ++rank) {
    if (is_over || rank >= begun) {
      absent["the time was over before it was looked for"].push_back(rank);
      continue;
    }
    Result<void> connected = fabric.connect(rank, end - Clock::now());
    is_over = connected.status() == Status::timed_out;
    // One that came and is lost was connected: its error is another operation's.
    if (is_over || (connected.status() == Status::peer_lost && connected.record().operation == "connect")) {
      absent[connected.record().cause].push_back(rank);
    } else if (!connected) {
      failure = std::move(connected);
    }
  }
  if (!absent.empty()) fail_for(absent, fabric.rank_count(), timeout);
  require(failure);
}

void await_ranks(Fabric& fabric, Timeout timeout) {
  if (fabric.rank() == 0) {
    connect_to_all(fabric, timeout);
    return require(fabric.barrier({}, timeout));
  }
  // Longer than rank 0, which says more.
  constexpr std::chrono::seconds kForRank0(5);
  const Result<void> met = fabric.barrier({}, Timeout::of(std::chrono::nanoseconds(timeout.ns()) + kForRank0));
  if (met.status() == Status::timed_out) {
    fail(fmt::format("not every rank has come within {:g} s (--timeout); rank 0 tells which", seconds_of(timeout)));
  }
  require(met);
}

Fabric open_fabric(const FabricOptions& options, const std::string& json_path, const CountCheck& check_count) {
  // PMIx tells the number of ranks to those who join.
  if (take(fabric::find_launcher()) != fabric::Launcher::pmix) check_count(take(fabric::find_job(options)).rank_count);
  if (!json_path.empty() && json_path != "-" && rank_by_environment() == "0") require_writable("--json", json_path);
  return take(Fabric::open(options));
}

// "rank 1: host, NVIDIA H200".
std::string introduction(std::size_t rank, const Json& introduction) {
  const Json device = introduction.value("device", Json());
  const std::string memory =
      device.is_object() ? text_of(device, "name") + std::string(stand_in_label(is_of_stand_in(introduction))) : "host memory";
  return fmt::format("rank {}: {}, {}", rank, text_of(introduction, "host"), memory);
}

}  // namespace

Timeout FabricSettings::timeout() const noexcept {
  return Timeout::of(std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_seconds * 1e9)));
}

void add_fabric_options(const Command& command, FabricSettings& settings, const char* timeout_help) {
  FabricOptions& options = settings.options;
  add_list(command, "--transport", options.transports, transport_name(),
           "Transports that may be used, best first: local, verbs, ucx, tcp");
  command.add_flag_callback(
      "--ucx-trust-network", [&options] { options.ucx_trust_network = true; },
      "Everybody on the job's network, or on its one host, is trusted: UCX, which authenticates nobody, may be used "
      "(GIGABAR_UCX_TRUST_NETWORK)");
  add_list(
      command, "--require", settings.required, path_name(),
      "The path that must be taken with GPU memory: gdr, p2p, bar or staged; where it cannot be, the run ends with the reason");
  add_list(command, "--prefer", settings.preferred, path_name(), "A path that is taken wherever it is possible; may be repeated");
  add_list(command, "--forbid", settings.forbidden, path_name(), "A path that is not taken; may be repeated");
  FabricLimits& limits = options.limits;
  command.add_option("--eager-limit", limits.eager_bytes, limit(),
                     "Up to here data travel inside one message (GIGABAR_EAGER_LIMIT)");
  command.add_option("--gdr-limit", limits.gdr_bytes, limit(),
                     "Up to here the NIC writes to GPU memory itself; staged above (GIGABAR_GDR_LIMIT)");
  command.add_option("--gdr-read-limit", limits.gdr_read_bytes, limit(),
                     "Up to here the NIC reads from GPU memory itself (GIGABAR_GDR_READ_LIMIT)");
  command.add_option("--kernel-limit", limits.kernel_bytes, limit(),
                     "Up to here a kernel may copy between GPUs in place of their copy engines (GIGABAR_KERNEL_LIMIT)");
  command.add_option("--chunk", limits.chunk_bytes, byte_count(4096, std::uint64_t{64} << 20),
                     "Piece of the staged pipeline (GIGABAR_CHUNK)");
  command.add_option("--chunks", limits.chunk_count, whole_number(1, 64), "Pieces under way per operation (GIGABAR_CHUNKS)");
  command.add_option("--stripe", limits.stripe_bytes, limit(), "Operations from here on use all rails at once (GIGABAR_STRIPE)");
  add_list(command, "--rails", options.rails, Value{"LIST"},
           "NIC ports, as in mlx5_0,mlx5_1/1 (GIGABAR_RAILS; default: the nearest to the GPU)");
  command.add_option("--rail-count", options.rail_count, whole_number(1, kMaxRails),
                     "Most rails per peer (GIGABAR_RAIL_COUNT; default 1)");
  command
      .add_choice("--rail-policy", options.rail_policy, kRailPolicies,
                  "Which rail an operation takes: first, round_robin or fixed (GIGABAR_RAIL_POLICY)")
      ->type_name("NAME");
  command.add_option(
      "--cpus", options.cpus, Value{"LIST"},
      "CPUs of this rank's threads, and the NUMA node of its buffers: near (its GPU, else its NIC), any, or a list as in 0-7,16 "
      "(GIGABAR_CPUS; default near)");
  command.add_option("--timeout", settings.timeout_seconds, seconds(86400), timeout_help);
}

FabricOptions fabric_options(const FabricSettings& settings) {
  FabricOptions options = settings.options;
  // Said as the option, before anything is opened.
  if (const auto wish = fabric::parse_cpu_wish("--cpus", options.cpus.value_or("near")); !wish)
    refuse_usage(fmt::format("--cpus: {}; {}", wish.error().record().cause, wish.error().record().remedy));
  if (settings.required.size() > 1 && settings.required.front() != settings.required.back()) {
    refuse_usage(fmt::format("--require {}: {} is required too, and an operation takes one path; require one",
                             settings.required.back(), settings.required.front()));
  }
  apply(options.policy, settings.required, Preference::require, "--require");
  apply(options.policy, settings.preferred, Preference::prefer, "--prefer");
  apply(options.policy, settings.forbidden, Preference::forbid, "--forbid");
  if (options.rails.size() > kMaxRails) {
    refuse_usage(
        fmt::format("--rails: {} are named, at most {} can be used; name fewer", counted(options.rails.size(), "rail"), kMaxRails));
  }
  // Who names several rails wants them used; with fixed each rank takes one of the list.
  if (!options.rail_count && options.rails.size() > 1 && options.rail_policy != RailPolicy::fixed)
    options.rail_count = static_cast<unsigned>(options.rails.size());
  options.connect_timeout = settings.timeout();
  return options;
}

Timeout times(Timeout one, std::int64_t count) noexcept {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  return std::chrono::nanoseconds(one.ns() < kMost / count ? one.ns() * count : kMost);
}

bool is_of_stand_in(const Json& introduction) { return introduction.value("is_stand_in", Json()) == true; }

std::string text_of(const Json& introduction, const char* key) {
  return introduction.contains(key) && introduction[key].is_string() ? plain(introduction[key].get<std::string>()) : "";
}

void add_job_options(const Command& command, JobOptions& options, const char* timeout_help) {
  add_json_option(command, options.json_path);
  add_fabric_options(command, options.fabric, timeout_help);
}

// --- A rank ---------------------------------------------------------------------------------------------------------------------

CountCheck exactly_two(std::string_view command) {
  return [command = std::string(command)](Rank rank_count) {
    if (rank_count == 2) return;
    refuse_usage(fmt::format("the job has {}, and {} is for exactly 2; start 2", counted(rank_count, "rank"), command));
  };
}

void fail_waiting_for(Rank rank, Timeout timeout, const Error& error) {
  if (error.status() != Status::timed_out) fail(error.message());
  fail(fmt::format("rank {} has not answered within {:g} s (--timeout); look at what it printed, and whether it still runs", rank,
                   seconds_of(timeout)));
}

RankSession::RankSession(std::string_view command, const JobOptions& options, const Invocation& invocation, CountCheck check_count)
    : fabric_(open_fabric(options.fabric.options, options.json_path, check_count)),
      check_count_(std::move(check_count)),
      timeout_(options.fabric.timeout()) {
  if (rank() != 0) return;
  report_ = std::make_unique<Report>(command, invocation, options.json_path);
  report_->set_line_prefix("# ");
}

void RankSession::join() {
  const std::vector<int> cpus = fabric_.cpus();
  if (const int code = keep_this_thread_on(cpus); code != 0)
    fail(fmt::format("CPUs {}: {}; choose others with --cpus", cpu_list_text(cpus), std::strerror(code)));
  await_ranks(fabric_, timeout_);
  check_count_(fabric_.rank_count());
}

bool RankSession::is_same_text(std::string_view text) {
  const auto number = static_cast<std::int64_t>(fnv1a(text));
  // The greatest of the complements is that of the least.
  const std::array own = {number, ~number};
  std::array<std::int64_t, 2> most{};
  require(fabric_.all_reduce({}, ReduceOperation::maximum, own, most, timeout_));
  return most[0] == ~most[1];
}

DeviceInfo RankSession::device_of(int index) {
  const std::vector<DeviceInfo> found = take(devices());
  const auto own = std::find_if(found.begin(), found.end(), [index](const DeviceInfo& each) { return each.index == index; });
  if (own == found.end()) fail(fmt::format("device {}: this process has {}", index, counted(found.size(), "device")));
  return *own;
}

std::vector<std::string> RankSession::gather(std::string own, std::size_t most_bytes, Timeout timeout) {
  if (rank() != 0) {
    require(fabric_.send(0, kIntroductionTag, own.data(), own.size(), timeout));
    return {};
  }
  std::vector<std::string> texts = {std::move(own)};
  for (Rank from = 1; from < fabric_.rank_count(); ++from) {
    std::string text(most_bytes, '\0');
    const Received received = take(fabric_.recv(from, kIntroductionTag, text.data(), text.size(), timeout));
    text.resize(received.bytes);
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<Json> RankSession::gather_introductions(const Json& own, std::size_t most_bytes, Timeout timeout) {
  std::vector<Json> introductions;
  for (const std::string& text : gather(own.dump(-1, ' ', false, Json::error_handler_t::replace), most_bytes, timeout)) {
    introductions.push_back(Json::parse(text, nullptr, false));
    if (!introductions.back().is_object()) {
      fail(fmt::format("rank {} has introduced itself with something else than it should", introductions.size() - 1));
    }
  }
  return introductions;
}

Json RankSession::introduction_of(const std::optional<DeviceInfo>& device) const {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return {{"rank", rank()},
          {"host", plain(host.data())},
          {"local_rank", fabric_.local_rank()},
          {"device", device ? to_json(*device) : Json()},
          {"is_stand_in", device && device->is_stand_in}};
}

std::vector<Json> RankSession::introduce(const Json& own) {
  std::vector<Json> introductions = gather_introductions(own, kMaxIntroductionBytes, timeout_);
  for (std::size_t i = 0; i < std::min(introductions.size(), kMaxRanksToIntroduce); ++i) {
    report_->print("# {}\n", introduction(i, introductions[i]));
    const std::string note = text_of(introductions[i], "note");
    if (!note.empty()) report_->note(fmt::format("rank {}: {}", i, note));
  }
  if (report_) report_->document()["ranks"] = introductions;
  // set_device() has said it of rank 0's.
  if (std::any_of(introductions.begin(), introductions.end(), is_of_stand_in) && !report_->is_stand_in())
    report_->note("stand-in: host memory plays a GPU, so the figures say nothing about one");
  return introductions;
}

Json RankSession::settings_json() const {
  return list_of(fabric_.settings(), [](const Setting& setting) -> Json {
    return {{"name", setting.name}, {"value", setting.value}, {"source", setting.source}};
  });
}

void RankSession::tell_settings() {
  for (const Setting& setting : fabric_.settings()) {
    if (setting.source != "default") report_->print("# {}: {} ({})\n", setting.name, setting.value, setting.source);
  }
  report_->document()["settings"] = settings_json();
}

void RankSession::complain(const Complaint& complaint, const std::string& count) {
  if (complaint.first_wrong.empty()) return;
  report_->print("# DATA VALIDATION ERROR: {} ({})\n", complaint.first_wrong, count);
  if (first_wrong_.empty()) first_wrong_ = complaint.first_wrong;
}

void RankSession::register_segment(SegmentId id, void* address, std::size_t bytes) {
  require(fabric_.register_segment(id, address, bytes));
  segments_.push_back(id);
}

void RankSession::leave(Timeout timeout) {
  meet(timeout);
  for (const SegmentId segment : segments_) require(fabric_.deregister_segment(segment, timeout_));
  require(fabric_.close(timeout_));
  if (report_) report_->write();
  if (!first_wrong_.empty()) fail("wrong data: " + first_wrong_);
}

// --- Starting and ending --------------------------------------------------------------------------------------------------------

bool is_under_launcher() { return take(fabric::find_launcher()) != fabric::Launcher::none; }

std::string rank_by_environment() { return plain(fabric::stated_rank()); }

void run_local_ranks(unsigned rank_count, std::string_view command, Invocation& invocation) {
  invocation.exit_status = run::launch({.path = "/proc/self/exe",
                                        .program = invocation.arguments,
                                        .rank_count = rank_count,
                                        .speaker = fmt::format("gigabar {}", command),
                                        .is_repeated = true});
}

void end_rank(const CommandFailure& failure, RankSession* session, Invocation& invocation) {
  const std::string rank = session != nullptr ? std::to_string(session->rank()) : rank_by_environment();
  if (rank == "0") throw failure;
  if (failure.exit_status() != kExitBadUsage)
    throw CommandFailure(failure.exit_status(), fmt::format("rank {}: {}", rank, failure.what()));
  if (session != nullptr) {
    static_cast<void>(session->fabric().recv(0, kNothingTag, nullptr, 0, std::chrono::seconds(5)));
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(5));  // rank 0 refuses as soon as it is there; its end may be this one's
  }
  invocation.exit_status = failure.exit_status();
}

}  // namespace gigabar::tool::ranks
