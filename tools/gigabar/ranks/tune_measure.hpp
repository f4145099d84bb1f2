// SPDX-License-Identifier: Apache-2.0
// What `gigabar tune` measures between its two ranks: each way in turn at each size, many times, so that all of them meet the same
// machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/fabric.hpp"
#include "ranks/buffers.hpp"
#include "ranks/fabric_settings.hpp"
#include "ranks/tune_choose.hpp"
#include "support/clock.hpp"
#include "support/options.hpp"
#include "support/report.hpp"

namespace gigabar::tool::ranks {

enum class Tuned : std::uint8_t { chunk, gdr_limit, gdr_read_limit, stripe };
std::string_view name_of(Tuned what) noexcept;  // "chunk", as the settings are called

struct TuneOptions {
  std::string accelerator = "cuda";  // --accelerator
  std::string sizes;                 // -m, as typed
  std::uint32_t iteration_count = 30;
  std::uint32_t warm_up_count = 3;
  StoreOptions stored;
  std::string json_path;
  FabricSettings fabric;
};

// One setting's curves, and what follows from them.
struct Finding {
  Tuned what = Tuned::chunk;
  std::string why_not;  // not measured, and why
  std::vector<std::uint64_t> sizes;
  std::vector<Curve> curves;
  std::optional<std::uint64_t> bytes;  // chosen
  std::optional<double> crossover_bytes;
  std::string why;
};
Json to_json(const Finding& finding);
// What a rank sent is not trusted: nothing when it is no finding.
std::optional<Finding> finding_from(const Json& json);

class TuneMeasurement {
 public:
  // `buffers` are registered as kTuneSegment at both ranks. `default_chunk_bytes`: what a fabric takes when nobody says.
  TuneMeasurement(Fabric& fabric, Buffers& buffers, const TuneOptions& options, const SampleClock& clock,
                  std::vector<std::uint64_t> sizes);

  // This rank posts and takes the time. `tell`: what it measures now.
  std::vector<Finding> drive(Rank partner, const std::function<void(const std::string&)>& tell);
  // This rank answers while `driver` does that.
  void answer(Rank driver);

 private:
  struct Way {
    std::string name;
    PostOptions post;
  };

  Finding find_chunk();
  Finding find_gdr_limit(Tuned what);
  Finding find_stripe();
  std::string why_no_gdr(const std::string& reason) const;
  std::optional<std::string> why_not(bool is_read, const PostOptions& post, TransferPath path);
  void measure(Finding& finding, const std::vector<Way>& ways, bool is_read);
  std::uint64_t once(std::uint64_t bytes, const PostOptions& post, bool is_read);
  Timeout timeout() const noexcept { return options_.fabric.timeout(); }

  Fabric& fabric_;
  Buffers& buffers_;
  const TuneOptions& options_;
  const SampleClock& clock_;
  const std::vector<std::uint64_t> sizes_;
  Rank partner_ = 0;
  std::function<void(const std::string&)> tell_;
  std::uint64_t chunk_bytes_ = 0;  // of staged ways
};

inline constexpr SegmentId kTuneSegment = 0;
inline constexpr std::uint64_t kDefaultChunkBytes = 262144;
inline constexpr std::uint64_t kMaxTriedChunkBytes = std::uint64_t{2} << 20;

}  // namespace gigabar::tool::ranks
