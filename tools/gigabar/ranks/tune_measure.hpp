// SPDX-License-Identifier: Apache-2.0
// What `gigabar tune` measures between its two ranks: each way in turn at each size, many times, so that all of them meet the same
// machine.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/counted.hpp"
#include "gigabar/fabric.hpp"
#include "ranks/buffers.hpp"
#include "ranks/job.hpp"
#include "ranks/tune_choose.hpp"
#include "support/clock.hpp"
#include "support/options.hpp"
#include "support/report.hpp"
#include "support/statistics.hpp"

namespace gigabar::tool::ranks {

enum class Tuned : std::uint8_t { chunk, gdr_limit, gdr_read_limit, stripe };
// As the settings are called.
inline constexpr std::array<Named<Tuned>, 4> kTuned = {{{Tuned::chunk, "chunk"},
                                                        {Tuned::gdr_limit, "gdr_limit"},
                                                        {Tuned::gdr_read_limit, "gdr_read_limit"},
                                                        {Tuned::stripe, "stripe"}}};
constexpr std::string_view name_of(Tuned what) noexcept { return name_in(kTuned, what); }

struct TuneOptions : JobOptions {
  std::string accelerator = "cuda";  // --accelerator
  std::string sizes;                 // -m, as typed
  std::uint32_t iteration_count = 30;
  std::uint32_t warm_up_count = 3;
  StoreOptions stored;
};

// One setting's curves, and what follows from them.
// GCC warns of members without "= {}" that an initializer leaves out.  NOLINTBEGIN(readability-redundant-member-init)
struct Finding {
  Tuned what = Tuned::chunk;
  std::string why_not = {};  // not measured, and why
  std::vector<std::uint64_t> sizes = {};
  std::vector<Curve> curves = {};
  std::optional<std::uint64_t> bytes = {};  // chosen
  std::optional<double> crossover_bytes = {};
  std::string why = {};
};
// NOLINTEND(readability-redundant-member-init)
inline constexpr std::uint64_t kDefaultChunkBytes = 262144;
inline constexpr std::uint64_t kMaxTriedChunkBytes = std::uint64_t{2} << 20;

inline constexpr QueueId kQueue = 0;
inline constexpr Tag kTurnTag = 11;  // of one byte: 1: a size is over, 0: everything is
inline constexpr std::uint64_t kMinTriedChunkBytes = 16384;
inline constexpr std::uint64_t kMinChunkedBytes = 131072;  // below, a message is too short to be a pipeline
inline constexpr std::size_t kMaxCurves = 64, kMaxSizes = 64;

inline PostOptions by(Preference PathPolicy::* path) {
  PostOptions post;
  post.queue = kQueue;
  post.policy.emplace().*path = Preference::require;
  return post;
}

inline Json to_json(const Finding& finding) {
  Json curves =
      list_of(finding.curves, [](const Curve& curve) -> Json { return {{"way", curve.name}, {"p50_us", curve.median_us}}; });
  return {{"setting", name_of(finding.what)},
          {"bytes", or_null(finding.bytes)},
          {"why", finding.why},
          {"why_not", finding.why_not},
          {"crossover_bytes", or_null(finding.crossover_bytes)},
          {"sizes", finding.sizes},
          {"curves", std::move(curves)}};
}

// What a rank sent is not trusted: nothing when it is no finding.
inline std::optional<Finding> finding_from(const Json& json) {
  try {
    Finding finding;
    const auto name = json.at("setting").get<std::string>();
    const auto known = std::find_if(kTuned.begin(), kTuned.end(), [&name](const auto& each) { return each.name == name; });
    if (known == kTuned.end()) return {};
    finding.what = known->value;
    if (!json.at("bytes").is_null()) finding.bytes = json.at("bytes").get<std::uint64_t>();
    if (!json.at("crossover_bytes").is_null()) finding.crossover_bytes = json.at("crossover_bytes").get<double>();
    finding.why = json.at("why").get<std::string>();
    finding.why_not = json.at("why_not").get<std::string>();
    finding.sizes = json.at("sizes").get<std::vector<std::uint64_t>>();
    for (const Json& curve : json.at("curves")) {
      finding.curves.push_back({curve.at("way").get<std::string>(), curve.at("p50_us").get<std::vector<double>>()});
      if (finding.curves.back().median_us.size() != finding.sizes.size()) return {};
    }
    if (finding.curves.size() > kMaxCurves || finding.sizes.size() > kMaxSizes) return {};
    return finding;
  } catch (const Json::exception&) {
    return {};
  }
}

class TuneMeasurement {
 public:
  // `buffers` are registered as kSegment at both ranks.
  TuneMeasurement(Fabric& fabric, Buffers& buffers, const TuneOptions& options, const SampleClock& clock,
                  std::vector<std::uint64_t> sizes)
      : fabric_(fabric),
        buffers_(buffers),
        options_(options),
        clock_(clock),
        sizes_(std::move(sizes)),
        chunk_bytes_(options.fabric.options.limits.chunk_bytes.value_or(kDefaultChunkBytes)) {}

  // This rank posts and takes the time. `tell`: what it measures now.
  std::vector<Finding> drive(Rank partner, const std::function<void(const std::string&)>& tell) {
    partner_ = partner;
    tell_ = tell;
    std::vector<Finding> findings;
    findings.push_back(find_chunk());
    findings.push_back(find_gdr_limit(Tuned::gdr_limit));
    findings.push_back(find_gdr_limit(Tuned::gdr_read_limit));
    findings.push_back(find_stripe());
    const std::byte over{0};
    require(fabric_.send(partner_, kTurnTag, &over, 1, timeout()));
    return findings;
  }

  // This rank answers while `driver` does that.
  // Waiting for the next word moves the fabric on, which is what answers the driver.
  void answer(Rank driver) {
    // All ways and rounds of one size, each of which may take `timeout` at the driver.
    constexpr std::int64_t kMaxWays = 16;
    const Timeout patience = times(timeout(), kMaxWays * (std::int64_t{options_.iteration_count} + options_.warm_up_count + 1));
    std::byte word{1};
    while (word != std::byte{0}) take(fabric_.recv(driver, kTurnTag, &word, 1, patience));
  }

 private:
  struct Way {
    std::string name;
    PostOptions post;
  };

  Timeout timeout() const noexcept { return options_.fabric.timeout(); }

  std::optional<std::string> why_not(bool is_read, const PostOptions& post, TransferPath path) {
    const std::uint64_t bytes = sizes_.back();
    const LocalPlace local{kSegment, 0};
    const RemotePlace remote{partner_, kSegment, buffers_.receive_offset_bytes()};
    const auto explained = is_read ? fabric_.explain_read(local, remote, bytes, timeout(), post)
                                   : fabric_.explain_write(local, remote, bytes, timeout(), post);
    const Explanation explanation = take(explained);
    if (!explanation.is_possible) return explanation.reason;
    // Between host memories a path that is required for GPU memory is not taken.
    if (path != TransferPath::none && explanation.path != path) {
      return fmt::format("the path is {}: {}", gigabar::name_of(explanation.path), explanation.reason);
    }
    return {};
  }

  Finding find_chunk() {
    if (options_.fabric.options.limits.chunk_bytes) return {Tuned::chunk, "--chunk is given"};
    if (options_.accelerator == "host")
      return {Tuned::chunk, "host memory is staged only where that is required; take --accelerator cuda"};
    Finding finding{Tuned::chunk};
    for (const std::uint64_t bytes : sizes_) {
      if (bytes >= kMinChunkedBytes) finding.sizes.push_back(bytes);
    }
    if (finding.sizes.empty()) return {Tuned::chunk, fmt::format("no size is at least {}", bytes_text(kMinChunkedBytes))};
    if (const auto reason = why_not(false, by(&PathPolicy::staged), TransferPath::staged))
      return {Tuned::chunk, "no staged path: " + *reason};
    std::vector<Way> ways;
    std::vector<std::uint64_t> candidates;
    std::size_t usual = 0;
    for (std::uint64_t bytes = kMinTriedChunkBytes; bytes <= kMaxTriedChunkBytes; bytes *= 2) {
      if (bytes == kDefaultChunkBytes) usual = candidates.size();
      candidates.push_back(bytes);
      ways.push_back({"chunk " + bytes_text(bytes), by(&PathPolicy::staged)});
      ways.back().post.chunk_bytes = bytes;
    }
    measure(finding, ways, false);
    const Pick pick = pick_nearest_to_best(finding.curves, usual);
    finding.bytes = chunk_bytes_ = candidates[pick.index];
    finding.why = pick.why;
    return finding;
  }

  // What chooses a path knows the transport that it was given; that gdr needs another one is for the reader.
  std::string why_no_gdr(const std::string& reason) const {
    for (const PeerState& peer : fabric_.peers()) {
      if (peer.rank != partner_ || !peer.transport || *peer.transport == TransportKind::verbs) continue;
      return fmt::format(
          "gdr needs RDMA, and the transport between these ranks is {}; start them where both have an RDMA port, with "
          "--transport verbs ('gigabar doctor' tells what is missing)",
          gigabar::name_of(*peer.transport));
    }
    return "no gdr at this link: " + reason;
  }

  Finding find_gdr_limit(Tuned what) {
    const bool is_read = what == Tuned::gdr_read_limit;
    const FabricLimits& limits = options_.fabric.options.limits;
    if (is_read && limits.gdr_read_bytes) return {what, "--gdr-read-limit is given"};
    if (!is_read && limits.gdr_bytes) return {what, "--gdr-limit is given"};
    if (options_.accelerator == "host") return {what, "gdr is of GPU memory; take --accelerator cuda"};
    Way gdr{"gdr", by(&PathPolicy::gdr)}, staged{"staged", by(&PathPolicy::staged)};
    staged.post.chunk_bytes = chunk_bytes_;
    if (const auto reason = why_not(is_read, gdr.post, TransferPath::gdr)) return {what, why_no_gdr(*reason)};
    if (const auto reason = why_not(is_read, staged.post, TransferPath::staged)) return {what, "no staged path: " + *reason};
    return split(what, {gdr, staged}, is_read, limit_of);
  }

  Finding find_stripe() {
    if (options_.fabric.options.limits.stripe_bytes) return {Tuned::stripe, "--stripe is given"};
    std::size_t rail_count = 0;
    for (const PeerState& peer : fabric_.peers()) {
      if (peer.rank == partner_) rail_count = peer.rails.size();
    }
    if (rail_count < 2) return {Tuned::stripe, "there is one rail; name more with --rails or --rail-count"};
    // Only what the link does by itself goes over several rails.
    PostOptions direct;
    direct.queue = kQueue;
    direct.policy.emplace().staged = Preference::forbid;
    direct.policy->bar = Preference::forbid;
    if (const auto reason = why_not(false, direct, TransferPath::none)) return {Tuned::stripe, "no direct path: " + *reason};
    Way one{"one rail", direct}, all{counted(rail_count, "rail"), direct};
    one.post.stripe_bytes = kUnlimitedBytes;
    all.post.stripe_bytes = 0;
    return split(Tuned::stripe, {one, all}, false, threshold_of);
  }

  // Where the first way ends and the second begins.
  using BytesOf = std::uint64_t (*)(std::span<const std::uint64_t> sizes, const Split& split) noexcept;
  Finding split(Tuned what, const std::vector<Way>& ways, bool is_read, BytesOf bytes_of) {
    Finding finding{what};
    finding.sizes = sizes_;
    measure(finding, ways, is_read);
    const Split split = split_between(finding.sizes, finding.curves[0], finding.curves[1]);
    finding.bytes = bytes_of(finding.sizes, split);
    finding.crossover_bytes = split.crossover_bytes;
    finding.why = split.why;
    return finding;
  }

  // Until the bytes are in place at the partner; of a read, here.
  std::uint64_t once(std::uint64_t bytes, const PostOptions& post, bool is_read) {
    const LocalPlace local{kSegment, 0};
    const RemotePlace remote{partner_, kSegment, buffers_.receive_offset_bytes()};
    const std::uint64_t start = clock_.now();
    take(is_read ? fabric_.read(local, remote, bytes, post) : fabric_.write(local, remote, bytes, post));
    require(fabric_.wait(kQueue, timeout()));
    if (!is_read) require(fabric_.flush(partner_, timeout()));
    return clock_.now() - start;
  }

  void measure(Finding& finding, const std::vector<Way>& ways, bool is_read) {
    for (const Way& way : ways) finding.curves.push_back({way.name, {}});
    const double us_per_tick = clock_.ns_per_tick() / 1000.0;
    for (const std::uint64_t bytes : finding.sizes) {
      tell_(fmt::format("{}: {}", name_of(finding.what), bytes_text(bytes)));
      std::vector<std::vector<double>> samples(ways.size());
      for (std::uint32_t round = 0; round < options_.warm_up_count + options_.iteration_count; ++round) {
        for (std::size_t way = 0; way < ways.size(); ++way) {
          // Each round begins with another one, so that none always follows the same.
          const std::size_t turn = (way + round) % ways.size();
          const std::uint64_t ticks = once(bytes, ways[turn].post, is_read);
          if (round >= options_.warm_up_count) samples[turn].push_back(static_cast<double>(ticks) * us_per_tick);
        }
      }
      for (std::size_t way = 0; way < ways.size(); ++way)
        finding.curves[way].median_us.push_back(std::max(median(samples[way]), 1e-3));
      const std::byte next{1};
      require(fabric_.send(partner_, kTurnTag, &next, 1, timeout()));
    }
  }

  Fabric& fabric_;
  Buffers& buffers_;
  const TuneOptions& options_;
  const SampleClock& clock_;
  const std::vector<std::uint64_t> sizes_;
  Rank partner_ = 0;
  std::function<void(const std::string&)> tell_;
  std::uint64_t chunk_bytes_ = 0;  // of staged ways
};

}  // namespace gigabar::tool::ranks
