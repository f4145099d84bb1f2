// SPDX-License-Identifier: Apache-2.0
// GPUs: the PCI tree's display controllers of NVIDIA, joined by address with what the drivers say; and the NVLinks between them.
#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <utility>

#include "base/errors.hpp"
#include "platform/topology_parts.hpp"

namespace gigabar::topology_parts {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint32_t kDisplay = 0x03;        // base class; the audio function beside it has 0x04
constexpr std::uint32_t kOtherBridge = 0x0680;  // NVSwitch

bool is_gpu(const PciNode& node) { return node.vendor == kNvidia && node.class_code >> 16 == kDisplay; }
bool is_nvswitch(const PciNode& node) { return node.vendor == kNvidia && node.class_code >> 8 == kOtherBridge; }

void add_answers(const GpuAnswers& answers, Gpu& gpu) {
  gpu.cuda_index = answers.cuda_index;
  gpu.uuid = answers.uuid;
  if (!answers.name.empty()) gpu.name = answers.name;
  gpu.is_coherent = answers.c2c_links.value_or(0) > 0;
  if (!answers.nvlinks) return;
  gpu.nvlinks_total = static_cast<unsigned>(answers.nvlinks->size());
  gpu.nvlinks_active = static_cast<unsigned>(std::ranges::count_if(*answers.nvlinks, &nvml::NvLink::is_active));
}

using AnswersByAddress = std::map<std::uint64_t, const GpuAnswers*>;

AnswersByAddress by_address(const DriverAnswers& answers) {
  AnswersByAddress found;
  for (const GpuAnswers& gpu : answers.gpus) {
    if (const auto address = PciAddress::parse(gpu.pci)) found.emplace(key_of(*address), &gpu);
  }
  return found;
}

std::vector<Gpu> gpus_of_tree(const std::vector<PciNode>& pci) {
  std::vector<Gpu> gpus;
  for (std::size_t i = 0; i < pci.size(); ++i) {
    if (!is_gpu(pci[i])) continue;
    Gpu gpu;
    gpu.pci = static_cast<int>(i);
    gpu.address = pci[i].address;
    gpu.name = pci[i].name;
    gpu.numa_node = pci[i].numa_node;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

// Those that the PCI tree does not have, or has without saying that they are GPUs.
void add_driver_only(const DriverAnswers& answers, const std::vector<PciNode>& pci, std::vector<Gpu>& gpus,
                     std::vector<std::string>& notes) {
  const PciIndex index = index_of(pci);
  PciIndex known = index_of(gpus);
  for (const GpuAnswers& told : answers.gpus) {
    const auto address = PciAddress::parse(told.pci);
    if (!address) {
      notes.push_back("the driver names a GPU without a PCI address; it is left out");
      continue;
    }
    if (!known.emplace(key_of(*address), 0).second) continue;
    Gpu gpu;
    gpu.address = *address;
    gpu.pci = find_in(index, *address);
    if (gpu.pci >= 0) {
      gpu.numa_node = pci[static_cast<std::size_t>(gpu.pci)].numa_node;
    } else {
      notes.push_back(text("the driver names the GPU ", address->to_string(), ", which the PCI tree does not have"));
    }
    gpus.push_back(std::move(gpu));
  }
}

void note_missing_answers(const Sources& from, const std::vector<Gpu>& gpus) {
  if (gpus.empty()) return;
  const DriverAnswers& answers = from.answers;
  // An archive may hold facts without the library's own answer.
  const auto is_missing = [&answers](const Availability& library, auto fact) {
    const auto has_fact = [fact](const GpuAnswers& gpu) { return (gpu.*fact).has_value(); };
    return !library.is_ok() && !(is_not_asked(library) && std::any_of(answers.gpus.begin(), answers.gpus.end(), has_fact));
  };
  if (is_missing(answers.cuda, &GpuAnswers::cuda_index))
    from.notes.push_back(text("CUDA's numbers of the GPUs are not known: ", answers.cuda.reason));
  if (is_missing(answers.nvml, &GpuAnswers::nvlinks)) from.notes.push_back(text("NVLinks are not known: ", answers.nvml.reason));
}

// Active links of one GPU by what is at their other end.
struct Links {
  struct Some {
    unsigned count = 0;
    double gb_per_s = 0;
    bool is_rate_known = true;

    void add(unsigned mb_per_s) {
      ++count;
      gb_per_s += mb_per_s / 1000.0;
      is_rate_known = is_rate_known && mb_per_s != 0;
    }
  };
  std::map<int, Some> to_gpus;
  Some to_switches;
  unsigned hidden_count = 0;
};

Links links_of(const GpuAnswers& answers, const PciIndex& gpu_at, const std::vector<PciNode>& pci, const PciIndex& index) {
  Links links;
  for (const nvml::NvLink& link : *answers.nvlinks) {
    if (!link.is_active) continue;
    const auto remote = PciAddress::parse(link.remote_pci);
    const int gpu = remote ? find_in(gpu_at, *remote) : -1;
    const int node = remote ? find_in(index, *remote) : -1;
    if (!link.is_switch && gpu >= 0) {
      links.to_gpus[gpu].add(link.mb_per_s);
    } else if (link.is_switch || (node >= 0 && is_nvswitch(pci[static_cast<std::size_t>(node)]))) {
      links.to_switches.add(link.mb_per_s);
    } else {
      ++links.hidden_count;
    }
  }
  return links;
}

using LinksByGpu = std::map<int, Links>;

// Without any link between the two, one of none. Both ends tell of the same direct links; where only one does, it is believed. Of
// those to switches all links of the one that has fewer reach the other.
NvLinkBond bond_between(const LinksByGpu::value_type& first, const LinksByGpu::value_type& second) {
  const auto one_way = [](const LinksByGpu::value_type& from, const LinksByGpu::value_type& to) {
    const auto found = from.second.to_gpus.find(to.first);
    return found == from.second.to_gpus.end() ? Links::Some{} : found->second;
  };
  const auto has_fewer = [](const Links::Some& a, const Links::Some& b) { return a.count < b.count; };
  const Links::Some direct = std::max(one_way(first, second), one_way(second, first), has_fewer);
  const bool is_switched = direct.count == 0;
  const Links::Some some = is_switched ? std::min(first.second.to_switches, second.second.to_switches, has_fewer) : direct;
  return {first.first, second.first, some.count, some.is_rate_known ? some.gb_per_s : 0, is_switched};
}

}  // namespace

std::vector<Gpu> read_gpus(const Sources& from, const std::vector<PciNode>& pci) {
  std::vector<Gpu> gpus = gpus_of_tree(pci);
  add_driver_only(from.answers, pci, gpus, from.notes);
  const AnswersByAddress answers = by_address(from.answers);
  for (Gpu& gpu : gpus) {
    const auto found = answers.find(key_of(gpu.address));
    if (found != answers.end()) add_answers(*found->second, gpu);
  }
  const auto place = [](const Gpu& gpu) { return std::pair(gpu.cuda_index.value_or(INT_MAX), key_of(gpu.address)); };
  std::ranges::sort(gpus, {}, place);
  note_missing_answers(from, gpus);
  return gpus;
}

std::vector<NvLinkBond> read_nvlinks(const Sources& from, const std::vector<PciNode>& pci, const std::vector<Gpu>& gpus) {
  const AnswersByAddress answers = by_address(from.answers);
  const PciIndex index = index_of(pci);
  const PciIndex gpu_at = index_of(gpus);
  LinksByGpu links;  // of GPUs with any: pairs are made of these only
  for (const auto& [address, gpu] : gpu_at) {
    const auto told = answers.find(address);
    if (told == answers.end() || !told->second->nvlinks) continue;
    const Links found = links_of(*told->second, gpu_at, pci, index);
    if (found.hidden_count != 0) {
      from.notes.push_back(
          text("GPU ", told->second->pci, ": NVML does not say where ", found.hidden_count, " active NVLinks lead"));
    }
    if (found.to_switches.count != 0) links[gpu].to_switches = found.to_switches;
    for (const auto& [peer, some] : found.to_gpus) {
      links[gpu].to_gpus[peer] = some;
      links[peer];
    }
  }
  std::vector<NvLinkBond> bonds;
  for (auto first = links.begin(); first != links.end(); ++first) {
    for (auto second = std::next(first); second != links.end(); ++second) {
      const NvLinkBond bond = bond_between(*first, *second);
      if (bond.count != 0) bonds.push_back(bond);
    }
  }
  return bonds;
}

}  // namespace gigabar::topology_parts
