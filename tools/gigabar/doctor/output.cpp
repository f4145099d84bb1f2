// SPDX-License-Identifier: Apache-2.0
#include "doctor/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <ranges>
#include <string>
#include <type_traits>

#include "base/insertion_sort.hpp"
#include "base/old_check_ids.hpp"
#include "doctor/members.hpp"
#include "support/plain_text.hpp"

namespace gigabar::tool::doctor {
namespace {

// What has a members_of() (src/doctor/members.hpp), with texts that are plain().
template <class Value>
Json document_of(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>) {
    return value;
  } else if constexpr (std::convertible_to<const Value&, std::string_view>) {
    return plain(value);
  } else if constexpr (requires { value.has_value(); }) {
    return value ? document_of(*value) : Json();
  } else if constexpr (std::ranges::range<const Value>) {
    return list_of(value, [](const auto& each) { return document_of(each); });
  } else {
    Json object = Json::object();
    members_of(value, [&object](std::string_view name, const auto& member) { object[std::string(name)] = document_of(member); });
    return object;
  }
}

std::string rate_text(const Route& route) {
  if (!route.gb_per_s) return "rate unknown";
  return fmt::format("at most {:.1f} GB/s, by {}", *route.gb_per_s,
                     route.bottleneck.empty() ? "an unknown link" : plain(route.bottleneck, 200));
}

}  // namespace

std::string current_id_with_note(std::string_view typed) {
  std::string current = current_check_id(typed);
  if (current != typed) fmt::print(stderr, "note: the check {} is called {} now\n", plain(typed, 100), plain(current, 100));
  return current;
}

bool wants_reading(Verdict verdict) { return verdict == Verdict::fail || verdict == Verdict::warn || verdict == Verdict::unknown; }

std::vector<Finding> by_gravity(std::vector<Finding> findings) {
  const auto place = [](const Finding& each) { return std::ranges::find(kByGravity, each.verdict); };
  insertion_sort(findings, [&](const Finding& one, const Finding& other) { return place(one) < place(other); });
  return findings;
}

std::string counts_text(const Examination& examination) {
  std::string counts;
  for (const Verdict verdict : kByGravity) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", examination.count(verdict), name_of(verdict));
  }
  return counts;
}

Json tell_best_nics(Report& report, const Topology& topology) {
  int number = 0;
  return list_of(nic_orders(topology), [&](const NicOrder& order) -> Json {
    const int gpu = number++;
    const std::string address = topology.gpus[static_cast<std::size_t>(gpu)].address.to_string();
    Json json = {{"gpu", gpu},         {"gpu_address", address}, {"nic", Json()},       {"reason", order.reason},
                 {"relation", Json()}, {"gb_per_s", Json()},     {"bottleneck", Json()}};
    if (order.nics.empty()) {
      report.print("GPU{} {}: no NIC with RDMA\n", gpu, address);
      return json;
    }
    const Nic& nic = topology.nics[static_cast<std::size_t>(order.nics.front())];
    const Route route = route_between(topology, {Endpoint::Kind::gpu, gpu}, {Endpoint::Kind::nic, order.nics.front()});
    report.print("GPU{} {}: best NIC {} ({}, {}; {})\n", gpu, address, plain(nic.name, 64),
                 short_name(route.relation, route.nvlink_count), rate_text(route), order.reason);
    json["nic"] = plain(nic.name);
    json["relation"] = name_of(route.relation);
    json["gb_per_s"] = or_null(route.gb_per_s);
    json["bottleneck"] = text_or_null(plain(route.bottleneck));
    return json;
  });
}

Json to_json(const Finding& finding) { return document_of(finding); }

Json to_json(const Topology& topology) { return document_of(topology); }

Json summary_json(const Examination& examination) { return document_of(summary_of(examination)); }

}  // namespace gigabar::tool::doctor
