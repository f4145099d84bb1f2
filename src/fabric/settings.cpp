// SPDX-License-Identifier: Apache-2.0
#include "fabric/settings.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/errors.hpp"
#include "base/names.hpp"
#include "base/options.hpp"
#include "fabric/tuning.hpp"

namespace gigabar::fabric {
namespace {

// Where the limits come from: messages as UCX's and MVAPICH2's eager limits (8 KB); the GDR limits apply where GPU and NIC are far
// from each other, MVAPICH2-GDR's 8 KB being for hosts of its time: here no limit until `gigabar tune` has measured one; chunks of
// 256 KiB as MVAPICH2's MV2_CUDA_BLOCK_SIZE; stripes from 16 KiB as its MV2_RAIL_SHARING_LARGE_MSG_THRESHOLD.
constexpr std::uint64_t kEagerBytes = 8192;
constexpr std::uint64_t kKernelBytes = 4 << 20;  // above it the copy engines of an H200 are as fast
constexpr std::uint64_t kChunkBytes = 262144;
constexpr unsigned kChunkCount = 4;
// Over ucx, whose links take such chunks in twelve pieces of 60 KiB. Larger chunks are fewer copies out of the GPU, more of them
// serve more small writes at once: 16 MiB between two H200 over loopback, medians of seven rounds in turns, 15.9 GB/s with
// 32 x 480 KiB, 16.8 with 24 x 720 KiB, 17.0 with 48 x 720 KiB, 16.4 with 24 x 960 KiB.
constexpr std::uint64_t kUcxChunkBytes = 737280;
constexpr unsigned kUcxChunkCount = 24;
// Over tcp, whose lanes share a chunk: the same with four of them 16.1 GB/s with 24 x 720 KiB, 17.7 as here, 17.6 with 8 x 3 MiB.
constexpr std::uint64_t kTcpChunkBytes = std::uint64_t{2} << 20;
constexpr unsigned kTcpChunkCount = 12;
constexpr std::uint64_t kStripeBytes = 16384;

Error bad_value(const std::string& name, std::string_view value, std::string_view allowed) {
  return make_error(Status::invalid_argument, "fabric open", name, text("'", value, "' is not allowed"), text("give ", allowed));
}

std::string join(const std::vector<std::string>& parts, std::string_view when_empty) {
  std::string line;
  for (const std::string& part : parts) line += (line.empty() ? "" : ",") + part;
  return line.empty() ? std::string(when_empty) : line;
}

constexpr std::array<std::string_view, 4> kPreferences = {"allow", "prefer", "require", "forbid"};
constexpr std::array<std::string_view, 3> kRailPolicies = {"first", "round_robin", "fixed"};

// What values of one kind look like, how they are read, and how they are shown.
template <class Value>
struct Form {
  std::string allowed;
  std::function<std::optional<Value>(std::string_view)> parse;
  std::function<std::string(const Value&)> print;
};

Form<std::uint64_t> bytes() {
  const auto parse = [](std::string_view value) -> std::optional<std::uint64_t> {
    if (value == "0") return 0;
    if (value == "unlimited") return kNoLimit;
    return parse_bytes(value);
  };
  return {"a size such as 64K, 0 or unlimited", parse, limit_text};
}

template <class Number>
Form<Number> number(Number least, Number most) {
  return {text("a number from ", least, " to ", most),
          [=](std::string_view value) { return parse_number<Number>(value, least, most); },
          [](const Number& value) { return std::to_string(value); }};
}

// `names`: of the first values of Enum.
template <class Enum, std::size_t kCount>
Form<Enum> one_of(const std::array<std::string_view, kCount>& names, const char* allowed) {
  return {allowed, [&names](std::string_view name) { return value_named<Enum>(names, name); },
          [&names](const Enum& value) { return std::string(name_at(names, value)); }};
}

// `also`: other words for the same two.
Form<bool> either(std::string_view yes, std::string_view no, std::string_view also_yes = {}, std::string_view also_no = {}) {
  const auto parse = [=](std::string_view value) -> std::optional<bool> {
    if (value == yes || value == also_yes) return true;
    if (value == no || value == also_no) return false;
    return std::nullopt;
  };
  return {text(yes, " or ", no), parse, [=](const bool& value) { return std::string(value ? yes : no); }};
}

constexpr std::array kTransports = {TransportKind::local, TransportKind::verbs, TransportKind::ucx, TransportKind::tcp};

Form<std::vector<TransportKind>> transports() {
  using Kinds = std::vector<TransportKind>;
  const auto parse = [](std::string_view value) -> std::optional<Kinds> {
    Kinds kinds;
    for (const std::string_view name : words_of(value, ",")) {
      const auto kind = std::ranges::find(kTransports, name, [](TransportKind one) { return name_of(one); });
      if (kind == kTransports.end()) return std::nullopt;
      kinds.push_back(*kind);
    }
    if (kinds.empty()) return std::nullopt;
    return kinds;
  };
  const auto print = [](const Kinds& kinds) {
    std::vector<std::string> names;
    for (const TransportKind kind : kinds) names.emplace_back(name_of(kind));
    return join(names, "none");
  };
  return {"a list of local, verbs, tcp and ucx", parse, print};
}

// Collects one value after the other; the first error stays. The variable of a setting is GIGABAR_ and its name in capitals.
class Collector {
 public:
  explicit Collector(Settings& settings) : settings_(settings) {}

  template <class Value>
  void take(Value& target, const std::optional<std::type_identity_t<Value>>& option, const std::string& name,
            std::type_identity_t<Value> otherwise, const Form<Value>& form) {
    std::string source = "default";
    std::string variable = "GIGABAR_" + name;
    for (char& letter : variable) letter = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
    target = std::move(otherwise);
    if (option) {
      target = *option;
      source = "option";
      if (!form.parse(form.print(target))) fail(bad_value(name, form.print(target), form.allowed));
    } else if (const auto given = environment(variable.c_str()); given && !given->empty()) {
      const auto value = form.parse(*given);
      if (!value) return fail(bad_value(variable, *given, form.allowed));
      target = *value;
      source = variable;
    }
    settings_.table.push_back({name, form.print(target), source});
  }

  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  std::optional<Error> error() && { return std::move(error_); }

 private:
  Settings& settings_;
  std::optional<Error> error_;
};

void take_policies(Collector& collector, Settings& settings, const FabricOptions& options) {
  settings.policy = options.policy;
  const auto take = [&](Preference& target, const std::string& name) {
    const std::optional<Preference> option = target == Preference::allow ? std::nullopt : std::optional(target);
    collector.take(target, option, name, Preference::allow, one_of<Preference>(kPreferences, "allow, prefer, require or forbid"));
  };
  take(settings.policy.gdr, "gdr");
  take(settings.policy.p2p, "p2p");
  take(settings.policy.bar, "bar");
  take(settings.policy.staged, "staged");
  if (auto refused = refuse_policy("fabric open", settings.policy)) collector.fail(std::move(*refused));
}

// What nobody has set is larger over sockets.
void take_socket_chunks(Settings& settings, TransportKind kind, std::uint64_t chunk_bytes, unsigned chunk_count, Limits limits) {
  if (settings.is_default("chunk")) {
    limits.chunk_bytes = chunk_bytes;
    settings.table.push_back({text("chunk (", name_of(kind), ')'), limit_text(limits.chunk_bytes), "default"});
  }
  if (settings.is_default("chunks")) {
    limits.chunk_count = chunk_count;
    settings.table.push_back({text("chunks (", name_of(kind), ')'), std::to_string(limits.chunk_count), "default"});
  }
  settings.limits_by_peer[static_cast<std::size_t>(kind)].fill(limits);
}

void take_limits(Collector& collector, Settings& settings, const FabricLimits& options) {
  Limits limits;
  collector.take(settings.eager_bytes, options.eager_bytes, "eager_limit", kEagerBytes, bytes());
  collector.take(limits.gdr_bytes, options.gdr_bytes, "gdr_limit", kNoLimit, bytes());
  collector.take(limits.gdr_read_bytes, options.gdr_read_bytes, "gdr_read_limit", kNoLimit, bytes());
  collector.take(settings.of_transports.most_kernel_bytes, options.kernel_bytes, "kernel_limit", kKernelBytes, bytes());
  collector.take(limits.chunk_bytes, options.chunk_bytes, "chunk", kChunkBytes, bytes());
  if (limits.chunk_bytes < kMinChunkBytes || limits.chunk_bytes > kMaxChunkBytes) {
    collector.fail(bad_value("chunk", limit_text(limits.chunk_bytes), "a size from 4K to 64M"));
  }
  collector.take(limits.chunk_count, options.chunk_count, "chunks", kChunkCount, number(1U, 64U));
  collector.take(limits.stripe_bytes, options.stripe_bytes, "stripe", kStripeBytes, bytes());
  for (auto& by_host : settings.limits_by_peer) by_host.fill(limits);
  take_socket_chunks(settings, TransportKind::ucx, kUcxChunkBytes, kUcxChunkCount, limits);
  take_socket_chunks(settings, TransportKind::tcp, kTcpChunkBytes, kTcpChunkCount, limits);
}

void take_rails(Collector& collector, Settings& settings, const FabricOptions& options) {
  transport::TransportOptions& taken = settings.of_transports;
  const auto given = options.rails.empty() ? std::nullopt : std::optional(options.rails);
  const Form<std::vector<std::string>> names{"a list such as mlx5_0,mlx5_1/1",
                                             [](std::string_view value) {
                                               const std::vector<std::string_view> words = words_of(value, ",");
                                               return std::optional(std::vector<std::string>(words.begin(), words.end()));
                                             },
                                             [](const auto& rails) { return join(rails, "nearest"); }};
  collector.take(taken.rails, given, "rails", {}, names);
  collector.take(taken.rail_count, options.rail_count, "rail_count", 1, number(1U, 8U));
  collector.take(settings.rail_policy, options.rail_policy, "rail_policy", RailPolicy::first,
                 one_of<RailPolicy>(kRailPolicies, "first, round_robin or fixed"));
  collector.take(taken.gid_index, options.gid_index, "gid_index", -1, number(0, 255));
  collector.take(taken.traffic_class, options.traffic_class, "traffic_class", -1, number(0, 255));
  collector.take(taken.service_level, options.service_level, "service_level", -1, number(0, 15));
}

// The table's value is completed when it is known what is near.
void take_cpus(Collector& collector, Settings& settings, const FabricOptions& options) {
  std::string wished;
  const auto as_it_is = [](std::string_view value) { return std::string(value); };
  collector.take(wished, options.cpus, "cpus", "near", {{}, as_it_is, as_it_is});
  auto wish = parse_cpu_wish(options.cpus ? "cpus" : "GIGABAR_CPUS", wished);
  if (!wish) return collector.fail(std::move(wish).error());
  settings.cpus = std::move(*wish);
}

}  // namespace

std::optional<Error> refuse_policy(std::string_view operation, const PathPolicy& policy) {
  if (std::ranges::count(std::array{policy.gdr, policy.p2p, policy.bar, policy.staged}, Preference::require) <= 1) return {};
  return make_error(Status::invalid_argument, std::string(operation), "policy", "more than one path is required",
                    "require one of gdr, p2p, bar and staged");
}

std::string limit_text(std::uint64_t bytes) { return bytes >= kNoLimit ? "unlimited" : std::to_string(bytes); }

bool Settings::is_default(std::string_view name) const noexcept {
  return std::ranges::any_of(table, [&](const Setting& setting) { return setting.name == name && setting.source == "default"; });
}

void Settings::show(std::string_view name, const std::string& value) {
  for (Setting& setting : table) {
    if (setting.name == name) setting.value = value;
  }
}

Result<Settings> find_settings(const FabricOptions& options) {
  Settings settings;
  for (const TransportKind kind : options.transports) {
    if (static_cast<std::size_t>(kind) >= kTransportKinds) {
      return bad_value("transports", std::to_string(static_cast<unsigned>(kind)), "local, verbs, ucx or tcp");
    }
  }
  Collector collector(settings);
  collector.take(settings.transports, options.transports.empty() ? std::nullopt : std::optional(options.transports), "transports",
                 {kTransports.begin(), kTransports.end()}, transports());
  const Form<bool> yes_or_no = either("yes", "no", "1", "0");
  collector.take(settings.ucx_trust_network, options.ucx_trust_network, "ucx_trust_network", false, yes_or_no);
  collector.take(settings.of_transports.is_tcp_sealed, std::nullopt, "tcp_protection", false, either("sealed", "authenticated"));
  take_rails(collector, settings, options);
  collector.take(settings.device, options.device, "device", -1, number(0, 1023));
  take_cpus(collector, settings, options);
  take_policies(collector, settings, options);
  take_limits(collector, settings, options.limits);
  collector.take(settings.of_transports.stand_in_registration, options.stand_in_registration, "stand_in_registration", true,
                 yes_or_no);
  collector.take(settings.progress_thread, options.progress_thread, "progress_thread", true, yes_or_no);
  collector.take(settings.notification_words, options.notification_words, "notification_words", true, yes_or_no);
  settings.connect_timeout_ns = options.connect_timeout.is_forever() ? INT64_MAX / 4 : options.connect_timeout.ns();
  if (auto error = std::move(collector).error()) return std::move(*error);
  return settings;
}

}  // namespace gigabar::fabric

namespace gigabar::inline v0 {

std::string_view name_of(RailPolicy policy) noexcept { return name_at(fabric::kRailPolicies, policy); }

}  // namespace gigabar::inline v0
