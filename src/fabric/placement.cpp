// SPDX-License-Identifier: Apache-2.0
#include "fabric/placement.hpp"

#include "base/errors.hpp"
#include "platform/cpu_set.hpp"

namespace gigabar::fabric {
namespace {

Error bad_cpus(std::string_view name, std::string_view value, std::string_view why, std::string remedy) {
  return make_error(Status::invalid_argument, "fabric open", std::string(name), text("'", value, "' ", why), std::move(remedy));
}

Placement not_bound(const std::string& why) { return {.cpus = {}, .numa_node = -1, .why = text("near: not bound (", why, ")")}; }

Placement near_to(const std::optional<Neighbour>& neighbour) {
  const std::vector<int> nodes = numa_nodes();
  if (nodes.size() < 2) return not_bound(nodes.empty() ? "this machine has no NUMA" : "one NUMA node");
  if (!neighbour) return not_bound("no GPU, and no rail of verbs");
  if (neighbour->numa_node < 0) return not_bound(text("the machine does not tell the node of ", neighbour->name));
  const std::string node = text("node ", neighbour->numa_node, " of ", neighbour->name);
  const std::vector<int> there = cpus_of_numa_node(neighbour->numa_node);
  if (there.empty()) return not_bound(text(node, " has no CPUs"));
  Placement placement;
  placement.cpus = cpus_in_both(there, usable_cpus());
  if (placement.cpus.empty()) return not_bound(text("this process may use no CPU of ", node));
  placement.numa_node = neighbour->numa_node;
  placement.why = text("near: ", cpu_list_text(placement.cpus), " (", node, ")");
  return placement;
}

Placement at(const std::vector<int>& cpus) {
  Placement placement;
  placement.cpus = cpus;
  placement.why = cpu_list_text(cpus);
  std::vector<int> nodes;
  for (const int node : numa_nodes()) {
    if (!cpus_in_both(cpus, cpus_of_numa_node(node)).empty()) nodes.push_back(node);
  }
  // CPUs of several nodes, or of one that has no memory.
  const bool is_one = nodes.size() == 1 && !first_cpu_outside(cpus, cpus_of_numa_node(nodes.front()));
  if (is_one) placement.numa_node = nodes.front();
  if (!nodes.empty()) placement.why += text(is_one ? " (node " : " (nodes ", cpu_list_text(nodes), ")");
  return placement;
}

}  // namespace

Result<CpuWish> parse_cpu_wish(std::string_view name, std::string_view value) {
  if (value == "near") return CpuWish{.kind = CpuWish::Kind::near, .cpus = {}};
  if (value == "any") return CpuWish{.kind = CpuWish::Kind::any, .cpus = {}};
  auto cpus = parse_cpu_list(value);
  if (!cpus) return bad_cpus(name, value, "is not allowed", "give near, any, or a list of CPUs such as 0-7,16");
  const std::vector<int> online = online_cpus();
  const std::vector<int> usable = usable_cpus();
  const auto missing = online.empty() ? std::nullopt : first_cpu_outside(*cpus, online);
  const auto forbidden = usable.empty() ? std::nullopt : first_cpu_outside(*cpus, usable);
  const std::string remedy = text("give CPUs of ", cpu_list_text(usable), ", or near, or any");
  if (missing) return bad_cpus(name, value, text("is not allowed: this machine has no CPU ", *missing, " online"), remedy);
  if (forbidden) return bad_cpus(name, value, text("is not allowed: this process may not use CPU ", *forbidden), remedy);
  return CpuWish{.kind = CpuWish::Kind::listed, .cpus = std::move(*cpus)};
}

std::optional<NumaAllocationPolicy> Placement::prefer_own_node() const {
  if (numa_node < 0) return {};
  auto policy = NumaAllocationPolicy::prefer(numa_node);
  if (!policy) return {};  // it was logged why
  return std::move(*policy);
}

Placement resolve_placement(const CpuWish& wish, const std::optional<Neighbour>& neighbour) {
  switch (wish.kind) {
    case CpuWish::Kind::near: return near_to(neighbour);
    case CpuWish::Kind::any: return {.cpus = {}, .numa_node = -1, .why = "any"};
    case CpuWish::Kind::listed: break;
  }
  return at(wish.cpus);
}

}  // namespace gigabar::fabric
