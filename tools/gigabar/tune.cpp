// SPDX-License-Identifier: Apache-2.0
// gigabar tune: measures between two ranks where one path should end and the next begin, and stores it where every fabric of this
// machine looks for it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.hpp"
#include "commands.hpp"
#include "fabric/tuning.hpp"
#include "gigabar/fabric.hpp"
#include "platform/stored_json.hpp"
#include "ranks/measure.hpp"
#include "ranks/tune_choose.hpp"
#include "support/options.hpp"
#include "support/plain_text.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool {
namespace ranks {
namespace {

// --- What is measured -----------------------------------------------------------------------------------------------------------

struct Tuned {
  std::string_view name, option;  // as the fabric and the command line call it
  std::optional<std::uint64_t> FabricLimits::* given;
  std::optional<std::uint64_t> fabric::TunedPair::* stored;
  bool is_of_reads = false;
};
constexpr Tuned kChunk{"chunk", "--chunk", &FabricLimits::chunk_bytes, &fabric::TunedPair::chunk_bytes};
constexpr Tuned kGdrLimit{"gdr_limit", "--gdr-limit", &FabricLimits::gdr_bytes, &fabric::TunedPair::gdr_bytes};
constexpr Tuned kGdrReadLimit{"gdr_read_limit", "--gdr-read-limit", &FabricLimits::gdr_read_bytes,
                              &fabric::TunedPair::gdr_read_bytes, true};
constexpr Tuned kStripe{"stripe", "--stripe", &FabricLimits::stripe_bytes, &fabric::TunedPair::stripe_bytes};
// In the order in which they are measured: the chunk that is found is then that of staged ways.
constexpr std::array kTuned = {&kChunk, &kGdrLimit, &kGdrReadLimit, &kStripe};

struct TuneOptions : JobOptions {
  std::string accelerator = "cuda";  // --accelerator
  std::string sizes;                 // -m, as typed
  std::uint32_t iteration_count = 30;
  std::uint32_t warm_up_count = 3;
  StoreOptions stored;
  FabricLimits given;  // before they are settled
  Plan plan;           // of the buffers
};

// One setting's curves, and what follows from them.
// GCC warns of members without "= {}" that an initializer leaves out.  NOLINTBEGIN(readability-redundant-member-init)
struct Finding {
  const Tuned* of = &kChunk;
  std::string why_not = {};  // not measured, and why
  std::vector<std::uint64_t> sizes = {};
  std::vector<Curve> curves = {};
  std::optional<std::uint64_t> bytes = {};  // chosen
  std::optional<double> crossover_bytes = {};
  std::string why = {};
};
// NOLINTEND(readability-redundant-member-init)
constexpr std::uint64_t kDefaultChunkBytes = 262144;
constexpr std::uint64_t kMaxTriedChunkBytes = std::uint64_t{2} << 20;

constexpr QueueId kQueue = 0;
constexpr Tag kTurnTag = 11;  // of one byte: 1: a size is over, 0: everything is
constexpr std::uint64_t kMinTriedChunkBytes = 16384;
constexpr std::uint64_t kMinChunkedBytes = 131072;  // below, a message is too short to be a pipeline
constexpr std::size_t kMaxCurves = 64, kMaxSizes = 64;

PostOptions by(Preference PathPolicy::* path) {
  PostOptions post;
  post.queue = kQueue;
  post.policy.emplace().*path = Preference::require;
  return post;
}

void to_json(Json& json, const Finding& finding) {
  json = {{"setting", finding.of->name},
          {"bytes", or_null(finding.bytes)},
          {"why", finding.why},
          {"why_not", finding.why_not},
          {"crossover_bytes", or_null(finding.crossover_bytes)},
          {"sizes", finding.sizes},
          {"curves", Json::array()}};
  for (const Curve& curve : finding.curves) json["curves"].push_back({{"way", curve.name}, {"p50_us", curve.median_us}});
}

constexpr const char* kNotMeasured = "the other rank has sent something else than what it measured";

// Ends the command, or throws the document's exception, when it is no finding.
void from_json(const Json& json, Finding& finding) {
  const auto name = json.at("setting").get<std::string>();
  const auto known = std::find_if(kTuned.begin(), kTuned.end(), [&name](const auto* each) { return each->name == name; });
  if (known == kTuned.end()) fail(kNotMeasured);
  finding.of = *known;
  if (!json.at("bytes").is_null()) finding.bytes = json.at("bytes").get<std::uint64_t>();
  if (!json.at("crossover_bytes").is_null()) finding.crossover_bytes = json.at("crossover_bytes").get<double>();
  finding.why = json.at("why").get<std::string>();
  finding.why_not = json.at("why_not").get<std::string>();
  finding.sizes = json.at("sizes").get<std::vector<std::uint64_t>>();
  for (const Json& curve : json.at("curves")) {
    finding.curves.push_back({curve.at("way").get<std::string>(), curve.at("p50_us").get<std::vector<double>>()});
    if (finding.curves.back().median_us.size() != finding.sizes.size()) fail(kNotMeasured);
  }
  if (finding.curves.size() > kMaxCurves || finding.sizes.size() > kMaxSizes) fail(kNotMeasured);
  if (finding.bytes && finding.curves.empty()) fail(kNotMeasured);
}

constexpr std::size_t kMaxToldBytes = std::size_t{1} << 18;
constexpr const char* kNoPlace = "there is no home and no cache folder to store in; give a file, as in --store=FILE";

// Settled from the command line alone.
TuneOptions settled(TuneOptions options) {
  Plan& plan = options.plan;
  plan.options.measure = Measure::latency;
  plan.options.kind = Kind::write;
  plan.first_place = plan.second_place = place_of("--accelerator", options.accelerator);
  plan.range =
      settle_range("-m", options.sizes, {.usual = {1024, std::uint64_t{4} << 20}, .unit = 1, .most = std::uint64_t{256} << 20});
  plan.sizes = sizes_of(plan.range);
  FabricOptions& fabric = options.fabric.options;
  fabric = fabric_options(options.fabric);
  options.given = fabric.limits;
  // Smaller chunks are tried one by one in staging memory for the largest.
  if (!fabric.limits.chunk_bytes) fabric.limits.chunk_bytes = kMaxTriedChunkBytes;
  return options;
}

// Why each setting was not measured; a reason that several have is said once.
std::string reasons_of(const std::vector<Finding>& findings) {
  nlohmann::ordered_map<std::string, std::string> names_of_reasons;
  for (const Finding& finding : findings) {
    std::string& names = names_of_reasons[finding.why_not];
    names += fmt::format("{}{}", names.empty() ? "" : ", ", finding.of->name);
  }
  std::string text;
  for (const auto& [reason, names] : names_of_reasons) text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", names, reason);
  return text;
}

std::string storing_path(const StoreOptions& wanted) {
  return wanted.path.empty() ? fabric::tuning_path(machine_fingerprint()) : wanted.path;
}

class TuneSession : public BufferSession {
 public:
  TuneSession(const TuneOptions& options, const Invocation& invocation)
      : BufferSession("tune", checked(options), invocation), options_(options) {}

  void run() {
    join();
    // The fabric's own device: what is stored is for it, also where host memory was measured.
    device_ = device_of(fabric().device());
    make_buffers(options_.plan, options_.plan.first_place);
    require(fabric().connect(partner(), timeout()));
    // Otherwise they would wait for each other in vain.
    if (!is_same_everywhere("tune", options_.plan.sizes.front(), options_.plan.sizes.back(), options_.iteration_count,
                            options_.warm_up_count, options_.stored.is_wanted))
      refuse_usage("the ranks were started with different options; give both the same");
    const std::string pair = key().to_text();
    const bool is_one_pair = is_same_everywhere(machine_fingerprint().digits(), pair);
    introductions_ = gather_introductions({{"host", introduction_of({})["host"]}, {"key", pair}}, kMaxIntroductionBytes, timeout());
    if (report() != nullptr) {
      if (options_.plan.first_place == Place::device) report()->set_device(*device_);
      report()->set_clock(clock_);
      report()->print("# ranks: 0 at {}, 1 at {}\n", text_of(introductions_[0], "host"), text_of(introductions_[1], "host"));
      report()->document()["settings"] = settings_json();
      report()->document()["samples"] = {{"iterations", options_.iteration_count}, {"warm_up", options_.warm_up_count}};
    }
    drive_or_answer(0);
    // The other side is a pair of its own where its GPU, its rails or its host are others.
    if (!is_one_pair) drive_or_answer(1);
    leave(timeout());
    if (!failure_.empty()) fail(failure_);
  }

 private:
  struct Way {
    std::string name;
    PostOptions post;
  };

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

  PeerState partner_state() {
    for (PeerState& peer : fabric().peers()) {
      if (peer.rank == partner()) return std::move(peer);
    }
    return {};
  }

  fabric::TunedKey key() {
    fabric::TunedKey found;
    found.device = fabric::tuned_device_name(device_->index);
    const PeerState peer = partner_state();
    if (!peer.transport) return found;
    found.transport = *peer.transport;
    if (*peer.transport == TransportKind::verbs) found.rails = peer.rails;
    found.is_same_host = peer.is_same_host;
    return found;
  }

  // --- Measuring -----------------------------------------------------------------------------------------------------------------

  // This rank posts and takes the time.
  std::vector<Finding> drive() {
    chunk_bytes_ = options_.given.chunk_bytes.value_or(kDefaultChunkBytes);
    std::vector<Finding> findings;
    for (const Tuned* const each : kTuned) findings.push_back(find(*each));
    send_turn(0);
    return findings;
  }

  void send_turn(std::uint8_t word) { require(fabric().send(partner(), kTurnTag, &word, 1, timeout())); }

  // This rank answers while the other one does that: waiting for the next word moves the fabric on, which is what answers it.
  void answer() {
    // All ways and rounds of one size, each of which may take `timeout` at the driver.
    constexpr std::int64_t kMaxWays = 16;
    const Timeout patience = times(timeout(), kMaxWays * (std::int64_t{options_.iteration_count} + options_.warm_up_count + 1));
    std::uint8_t word = 1;
    while (word != 0) take(fabric().recv(partner(), kTurnTag, &word, 1, patience));
  }

  Finding find(const Tuned& what) {
    if (options_.given.*what.given) return {&what, fmt::format("{} is given", what.option)};
    if (&what == &kChunk) return find_chunk();
    return &what == &kStripe ? find_stripe() : find_gdr_limit(what);
  }

  std::optional<std::string> why_not(const Tuned& what, const PostOptions& post, TransferPath path) {
    const std::uint64_t bytes = options_.plan.sizes.back();
    const LocalPlace local{kSegment, 0};
    const RemotePlace remote{partner(), kSegment, buffers_.front()->receive_offset_bytes()};
    const auto explained = what.is_of_reads ? fabric().explain_read(local, remote, bytes, timeout(), post)
                                            : fabric().explain_write(local, remote, bytes, timeout(), post);
    const Explanation explanation = take(explained);
    if (!explanation.is_possible) return explanation.reason;
    // Between host memories a path that is required for GPU memory is not taken.
    if (path != TransferPath::none && explanation.path != path) {
      return fmt::format("the path is {}: {}", gigabar::name_of(explanation.path), explanation.reason);
    }
    return {};
  }

  Finding find_chunk() {
    if (options_.accelerator == "host")
      return {&kChunk, "host memory is staged only where that is required; take --accelerator cuda"};
    std::vector<std::uint64_t> sizes = options_.plan.sizes;
    std::erase_if(sizes, [](std::uint64_t bytes) { return bytes < kMinChunkedBytes; });
    if (sizes.empty()) return {&kChunk, fmt::format("no size is at least {}", bytes_text(kMinChunkedBytes))};
    if (const auto reason = why_not(kChunk, by(&PathPolicy::staged), TransferPath::staged))
      return {&kChunk, "no staged path: " + *reason};
    std::vector<Way> ways;
    std::size_t usual = 0;
    for (std::uint64_t bytes = kMinTriedChunkBytes; bytes <= kMaxTriedChunkBytes; bytes *= 2) {
      if (bytes == kDefaultChunkBytes) usual = ways.size();
      ways.push_back({"chunk " + bytes_text(bytes), by(&PathPolicy::staged)});
      ways.back().post.chunk_bytes = bytes;
    }
    Finding finding = measured(kChunk, std::move(sizes), ways);
    const Pick pick = pick_nearest_to_best(finding.curves, usual);
    finding.bytes = chunk_bytes_ = ways[pick.index].post.chunk_bytes.value();
    finding.why = pick.why;
    return finding;
  }

  // What chooses a path knows the transport that it was given; that gdr needs another one is for the reader.
  std::string why_no_gdr(const std::string& reason) {
    const auto transport = partner_state().transport;
    if (!transport || *transport == TransportKind::verbs) return "no gdr at this link: " + reason;
    return fmt::format(
        "gdr needs RDMA, and the transport between these ranks is {}; start them where both have an RDMA port, with "
        "--transport verbs ('gigabar doctor' tells what is missing)",
        gigabar::name_of(*transport));
  }

  Finding find_gdr_limit(const Tuned& what) {
    if (options_.accelerator == "host") return {&what, "gdr is of GPU memory; take --accelerator cuda"};
    Way gdr{"gdr", by(&PathPolicy::gdr)}, staged{"staged", by(&PathPolicy::staged)};
    staged.post.chunk_bytes = chunk_bytes_;
    if (const auto reason = why_not(what, gdr.post, TransferPath::gdr)) return {&what, why_no_gdr(*reason)};
    if (const auto reason = why_not(what, staged.post, TransferPath::staged)) return {&what, "no staged path: " + *reason};
    return split(what, {gdr, staged}, &Split::limit_bytes);
  }

  Finding find_stripe() {
    const std::size_t rail_count = partner_state().rails.size();
    if (rail_count < 2) return {&kStripe, "there is one rail; name more with --rails or --rail-count"};
    // Only what the link does by itself goes over several rails.
    PostOptions direct;
    direct.queue = kQueue;
    direct.policy.emplace().staged = Preference::forbid;
    direct.policy->bar = Preference::forbid;
    if (const auto reason = why_not(kStripe, direct, TransferPath::none)) return {&kStripe, "no direct path: " + *reason};
    Way one{"one rail", direct}, all{counted(rail_count, "rail"), direct};
    one.post.stripe_bytes = kUnlimitedBytes;
    all.post.stripe_bytes = 0;
    return split(kStripe, {one, all}, &Split::threshold_bytes);
  }

  // Where the first way ends and the second begins.
  Finding split(const Tuned& what, const std::vector<Way>& ways, std::uint64_t Split::* bytes) {
    Finding finding = measured(what, options_.plan.sizes, ways);
    const Split split = split_between(finding.sizes, finding.curves[0], finding.curves[1]);
    finding.bytes = split.*bytes;
    finding.crossover_bytes = split.crossover_bytes;
    finding.why = split.why;
    return finding;
  }

  // Until the bytes are in place at the partner; of a read, here.
  std::uint64_t once(std::uint64_t bytes, const PostOptions& post, bool is_read) {
    const LocalPlace local{kSegment, 0};
    const RemotePlace remote{partner(), kSegment, buffers_.front()->receive_offset_bytes()};
    const std::uint64_t start = clock_.now();
    take(is_read ? fabric().read(local, remote, bytes, post) : fabric().write(local, remote, bytes, post));
    require(fabric().wait(kQueue, timeout()));
    if (!is_read) require(fabric().flush(partner(), timeout()));
    return clock_.now() - start;
  }

  Finding measured(const Tuned& what, std::vector<std::uint64_t> sizes, const std::vector<Way>& ways) {
    Finding finding{.of = &what, .sizes = std::move(sizes)};
    for (const Way& way : ways) finding.curves.push_back({way.name, {}});
    const double us_per_tick = clock_.ns_per_tick() / 1000.0;
    for (const std::uint64_t bytes : finding.sizes) {
      if (report() != nullptr) report()->show_progress("{}: {}", what.name, bytes_text(bytes));
      std::vector<std::vector<double>> samples(ways.size());
      for (std::uint32_t round = 0; round < options_.warm_up_count + options_.iteration_count; ++round) {
        for (std::size_t way = 0; way < ways.size(); ++way) {
          // Each round begins with another one, so that none always follows the same.
          const std::size_t turn = (way + round) % ways.size();
          const std::uint64_t ticks = once(bytes, ways[turn].post, what.is_of_reads);
          if (round >= options_.warm_up_count) samples[turn].push_back(static_cast<double>(ticks) * us_per_tick);
        }
      }
      for (std::size_t way = 0; way < ways.size(); ++way)
        finding.curves[way].median_us.push_back(std::max(median(samples[way]), 1e-3));
      send_turn(1);
    }
    return finding;
  }

  // --- Storing -------------------------------------------------------------------------------------------------------------------

  void drive_or_answer(Rank driver) {
    Json told = Json::object();
    if (rank() == driver) {
      told = store(drive());
    } else {
      if (report() != nullptr) report()->show_progress("rank {} measures", driver);
      answer();
    }
    if (driver != 0) {
      const std::vector<Json> all = gather_introductions(told, kMaxToldBytes, timeout());
      if (report() != nullptr) told = all[driver];
    }
    if (report() != nullptr) tell(driver, told);
  }

  // What is told of this rank's findings.
  Json store(const std::vector<Finding>& findings) {
    fabric::TunedPair pair;
    pair.key = key();
    pair.date = stored::date_now();
    bool has_any = false;
    for (const Finding& finding : findings) {
      has_any |= finding.bytes.has_value();
      pair.*finding.of->stored = finding.bytes;
    }
    const std::string path = storing_path(options_.stored);
    std::string why_not;
    if (!has_any) {
      why_not = failure_ = "nothing could be measured: " + reasons_of(findings);
    } else if (!options_.stored.is_wanted) {
      why_not = "--no-store";
    } else if (path.empty()) {
      why_not = failure_ = kNoPlace;
    } else if (const Result<void> done = fabric::store_tuned(path, machine_fingerprint(), pair); !done) {
      why_not = failure_ = done.message();
    }
    return {{"findings", findings}, {"stored", why_not.empty() ? path : ""}, {"why_not_stored", why_not}};
  }

  // --- What is printed -----------------------------------------------------------------------------------------------------------

  // What a rank sent is not trusted.
  void tell(Rank driver, const Json& told) try {
    const auto findings = told.at("findings").get<std::vector<Finding>>();
    const auto path = told.at("stored").get<std::string>(), why_not = told.at("why_not_stored").get<std::string>();
    const std::string pair = text_of(introductions_[driver], "key");
    report()->print("\nrank {}: {}{}\n", driver, pair, stand_in_label(report()->is_stand_in()));
    for (const Finding& finding : findings) tell(finding);
    report()->print("{}{}\n", path.empty() ? "not stored: " : "stored in ", plain(path.empty() ? why_not : path));
    report()->add_result(
        {{"rank", driver}, {"pair", pair}, {"findings", findings}, {"stored", text_or_null(path)}, {"why_not_stored", why_not}});
  } catch (const Json::exception&) {
    fail(kNotMeasured);
  }

  void tell(const Finding& finding) {
    report()->end_table();
    report()->print("\n");
    if (!finding.bytes) {
      report()->print("{}: not measured: {}\n", finding.of->name, plain(finding.why_not));
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
    report()->print("{}: {}: {}\n", finding.of->name, limit, plain(finding.why));
  }

  const TuneOptions options_;
  std::vector<Json> introductions_;  // at rank 0
  std::uint64_t chunk_bytes_ = 0;    // of staged ways
  std::string failure_;
};

}  // namespace
}  // namespace ranks

void add_tune(const Command& program, Invocation& invocation) {
  const auto [command, options] = ranks::add_pair_command<ranks::TuneSession, ranks::TuneOptions>(
      program, invocation, "tune", "Measure the size limits between the paths of two ranks, and store them", ranks::settled);
  command->add_option("--accelerator", options.accelerator, Value{"cuda|host"},
                      "Memory of both ranks: cuda (stand-ins where there is no GPU), or host");
  command->add_option("-d", options.accelerator)->group("");  // its old name
  add_range_option(command, "-m,--message-size", options.sizes, "Sizes: doubled from MIN to MAX", "1K:4M");
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
