// SPDX-License-Identifier: Apache-2.0
#include "platform/pci_link.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>

#include "base/errors.hpp"
#include "base/options.hpp"
#include "driver/nvml/nvml.hpp"
#include "platform/host_memory.hpp"
#include "platform/roots.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::inline v0 {
namespace {

constexpr unsigned kMaxLanes = 32;

struct Generation {
  double gt_per_s;
  double coding;
  const char* name;
};
constexpr std::array<Generation, 6> kGenerations{{{2.5, 8.0 / 10, "1.0"},
                                                  {5, 8.0 / 10, "2.0"},
                                                  {8, 128.0 / 130, "3.0"},
                                                  {16, 128.0 / 130, "4.0"},
                                                  {32, 128.0 / 130, "5.0"},
                                                  {64, 242.0 / 256, "6.0"}}};

const Generation* generation_of(double gt_per_s) noexcept {
  const auto found = std::ranges::find(kGenerations, gt_per_s, &Generation::gt_per_s);
  return found == kGenerations.end() ? nullptr : &*found;
}

std::optional<PcieLink> link_in(const std::string& folder) {
  const double gt_per_s = link_speed_in(word_in_file(folder + "/current_link_speed"));
  return pcie_link_of_speed(gt_per_s, link_lanes_in(word_in_file(folder + "/current_link_width")));
}

// The bridge above; -1: none, or there is no such device.
int above(const Topology& topology, int pci) {
  if (pci < 0 || pci >= std::ssize(topology.pci)) return -1;
  const int parent = topology.pci[static_cast<std::size_t>(pci)].parent;
  return parent < pci ? parent : -1;
}

}  // namespace

std::vector<int> way_up(const Topology& topology, int pci) {
  std::vector<int> way;
  for (; pci >= 0 && pci < std::ssize(topology.pci); pci = above(topology, pci)) way.push_back(pci);
  return way;
}

int common_bridge(const Topology& topology, int first, int second) {
  const std::vector<int> one = way_up(topology, above(topology, first)), other = way_up(topology, above(topology, second));
  const auto lowest = std::ranges::find_first_of(one, other);
  return lowest == one.end() ? -1 : *lowest;
}

double PcieLink::gb_per_s() const noexcept {
  const Generation* generation = generation_of(gt_per_s);
  return generation == nullptr ? 0 : gt_per_s * width * generation->coding / 8;
}

std::string PcieLink::name() const {
  const Generation* generation = generation_of(gt_per_s);
  return text("PCIe ", generation == nullptr ? "?" : generation->name, " x", width);
}

std::optional<PcieLink> pcie_link_of_speed(double gt_per_s, unsigned width) noexcept {
  if (generation_of(gt_per_s) == nullptr || width == 0 || width > kMaxLanes) return {};
  return PcieLink{gt_per_s, width};
}

std::optional<PcieLink> pcie_link_of_generation(unsigned generation, unsigned width) noexcept {
  if (generation == 0 || generation > kGenerations.size()) return {};
  return pcie_link_of_speed(kGenerations[generation - 1].gt_per_s, width);
}

double link_speed_in(std::string_view text) {
  constexpr double kMaxGtPerS = 1024;
  return topology_parts::leading_number(text, kMaxGtPerS);
}

unsigned link_lanes_in(std::string_view text) { return parse_number<unsigned>(text, 0, kMaxLanes).value_or(0); }

std::vector<PcieHop> pcie_path(const PciAddress& address) {
  namespace fs = std::filesystem;
  std::vector<PcieHop> path;
  std::error_code failed;
  const std::string device = address.to_string();
  // A link to /sys/devices/pci0000:3a/0000:3a:01.0/0000:3b:00.0: the folders above a device are the ports above it.
  fs::path folder = fs::canonical(platform_roots().sys + "/bus/pci/devices/" + device, failed);
  if (failed) path.push_back({device, {}, {}});
  while (!failed && PciAddress::parse(folder.filename().string())) {
    auto link = link_in(folder.string());
    path.push_back({folder.filename().string(), link, link ? "sysfs" : ""});
    folder = folder.parent_path();
  }
  if (!path.front().link) {
    if (const auto told = nvml::pcie_link(device)) {
      path.front().link = pcie_link_of_generation(told->generation, told->width);
      if (path.front().link) path.front().source = "NVML";
    }
  }
  return path;
}

std::vector<PcieHop> pcie_path_between(const std::vector<PcieHop>& first, const std::vector<PcieHop>& second) {
  const auto others_than = [](const std::vector<PcieHop>& other, std::vector<PcieHop> path) {
    std::erase_if(path, [&](const PcieHop& hop) { return std::ranges::count(other, hop.device, &PcieHop::device) != 0; });
    return path;
  };
  std::vector<PcieHop> path = others_than(second, first);
  std::ranges::move(others_than(first, second), std::back_inserter(path));
  return path;
}

}  // namespace gigabar::inline v0
