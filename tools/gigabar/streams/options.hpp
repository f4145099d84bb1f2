// SPDX-License-Identifier: Apache-2.0
// What the command line of `gigabar streams` asks for, and what ends it early.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gigabar/memory.hpp"
#include "support/signal_handlers.hpp"

namespace gigabar::tool {
struct Invocation;
}

namespace gigabar::tool::streams {

enum class Format : std::uint8_t { table, cuts, json, csv };

// One of the options that add transfers. Their order on the command line is that of the transfers.
struct Argument {
  enum class Kind : std::uint8_t { device_to_host, host_to_device, device_to_device, text, file };
  Kind kind;
  std::string text;  // as typed
};

struct Options {
  std::vector<Argument> arguments;
  std::vector<std::string> presets;
  bool lists_presets = false;

  // Of transfers that do not say it themselves. Nothing: CUts' value, for presets nvbandwidth's.
  std::optional<std::size_t> bytes;
  std::optional<std::uint64_t> iterations;
  std::optional<double> seconds;
  std::string executor;
  HostPages pages = HostPages::pinned;
  bool is_near = true;  // host memory on the GPU's node
  bool may_stage = false;

  std::vector<std::size_t> sweep_sizes;  // bytes; empty: no sweep
  unsigned repeat_count = 5;
  bool is_verified = true;
  std::optional<double> timeout_seconds;

  bool is_dry_run = false;
  std::optional<int> device_count;  // of a dry run
  std::optional<double> expected_ratio;
  std::optional<double> link_gb_per_s;  // of links whose rate the machine does not tell
  bool times_plain_copies = false;
  Format format = Format::table;
  std::string json_path;
};

// SIGINT, SIGTERM and SIGHUP while transfers run: a flag that ends them after the copies in flight. The second signal ends the
// process as if nobody listened.
inline std::atomic<bool> is_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

// While one lives, the signals set the flag; afterwards they do what they did before. One at a time.
class Interrupt {
 public:
  Interrupt() : handlers_([](int) { is_interrupted.store(true); }, SA_RESTART | static_cast<int>(SA_RESETHAND)) {}

  static const std::atomic<bool>& flag() noexcept { return is_interrupted; }
  static bool is_set() noexcept { return is_interrupted.load(); }

 private:
  EndHandlers handlers_;
};

// Does what the options ask for. Returns when all is well, and ends the command otherwise, after everything was printed and
// written.
void run(const Options& options, const Invocation& invocation);

// Behind kExitFailed and kExitBadUsage.
inline constexpr int kExitBelowExpectation = 3;
inline constexpr int kExitInterrupted = 130;  // as a shell counts SIGINT

}  // namespace gigabar::tool::streams
