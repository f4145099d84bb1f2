// SPDX-License-Identifier: Apache-2.0
#include "ranks/fabric_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/counted.hpp"
#include "fabric/placement.hpp"
#include "platform/cpu_set.hpp"
#include "support/failure.hpp"
#include "support/option_checks.hpp"
#include "support/options.hpp"

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

void add_paths(const Command& command, const char* name, std::vector<std::string>& target, const std::string& help) {
  command.add_option(name, target, path_name(), help)->delimiter(',')->allow_extra_args(false);
}

void add_path_options(const Command& command, FabricSettings& settings) {
  command
      .add_option("--transport", settings.options.transports, transport_name(),
                  "Transports that may be used, best first: local, verbs, ucx, tcp")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_flag_callback(
      "--ucx-trust-network", [&settings] { settings.options.ucx_trust_network = true; },
      "Everybody on the job's network, or on its one host, is trusted: UCX, which authenticates nobody, may be used "
      "(GIGABAR_UCX_TRUST_NETWORK)");
  add_paths(
      command, "--require", settings.required,
      "The path that must be taken with GPU memory: gdr, p2p, bar or staged; where it cannot be, the run ends with the reason");
  add_paths(command, "--prefer", settings.preferred, "A path that is taken wherever it is possible; may be repeated");
  add_paths(command, "--forbid", settings.forbidden, "A path that is not taken; may be repeated");
}

void add_limit_options(const Command& command, FabricLimits& limits) {
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
}

void add_rail_options(const Command& command, FabricOptions& options) {
  command.add_option("--rails", options.rails, "NIC ports, as in mlx5_0,mlx5_1/1 (GIGABAR_RAILS; default: the nearest to the GPU)")
      ->delimiter(',')
      ->type_name("LIST")
      ->allow_extra_args(false);
  command.add_option("--rail-count", options.rail_count, whole_number(1, kMaxRails),
                     "Most rails per peer (GIGABAR_RAIL_COUNT; default 1)");
  command
      .add_choice("--rail-policy", options.rail_policy, kRailPolicies,
                  "Which rail an operation takes: first, round_robin or fixed (GIGABAR_RAIL_POLICY)")
      ->type_name("NAME");
}

// Said as the option, before anything is opened.
void check_cpus(const std::optional<std::string>& cpus) {
  if (!cpus) return;
  const auto wish = fabric::parse_cpu_wish("--cpus", *cpus);
  if (wish) return;
  refuse_usage(fmt::format("--cpus: {}; {}", wish.error().record().cause, wish.error().record().remedy));
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

}  // namespace

Timeout FabricSettings::timeout() const noexcept {
  return Timeout::of(std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_seconds * 1e9)));
}

void add_fabric_options(const Command& command, FabricSettings& settings, const char* timeout_help) {
  add_path_options(command, settings);
  add_limit_options(command, settings.options.limits);
  add_rail_options(command, settings.options);
  command
      .add_option(
          "--cpus", settings.options.cpus,
          "CPUs of this rank's threads, and the NUMA node of its buffers: near (its GPU, else its NIC), any, or a list as in "
          "0-7,16 (GIGABAR_CPUS; default near)")
      ->type_name("LIST");
  command.add_option("--timeout", settings.timeout_seconds, seconds(86400), timeout_help);
}

FabricOptions fabric_options(const FabricSettings& settings) {
  FabricOptions options = settings.options;
  check_cpus(options.cpus);
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
  const bool takes_one_each = options.rail_policy && *options.rail_policy == RailPolicy::fixed;
  if (!options.rail_count && options.rails.size() > 1 && !takes_one_each) {
    options.rail_count = static_cast<unsigned>(options.rails.size());
  }
  options.connect_timeout = settings.timeout();
  return options;
}

void follow_cpus(const Fabric& fabric) {
  const std::vector<int> cpus = fabric.cpus();
  const int code = keep_this_thread_on(cpus);
  if (code != 0) fail(fmt::format("CPUs {}: {}; choose others with --cpus", cpu_list_text(cpus), std::strerror(code)));
}

}  // namespace gigabar::tool::ranks
