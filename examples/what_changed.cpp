// SPDX-License-Identifier: Apache-2.0
// Says what a machine has lost: ./what_changed box.tar. The first run captures the machine into that file; each later one compares
// the machine with it, and exits with 1 when a device is gone, a PCIe link is narrower or an RDMA port is down.
#include <cstdio>
#include <filesystem>
#include <gigabar/topology.hpp>

// How many things are worse now; prints each.
int compare(const gigabar::Topology& before, const gigabar::Topology& now) {
  int worse = 0;
  for (const gigabar::PciNode& old : before.pci) {
    const int index = now.find_pci(old.address);
    if (index < 0) {
      std::printf("%s %s is gone\n", old.address.to_string().c_str(), old.name.c_str());
      ++worse;
      continue;
    }
    const unsigned width = now.pci[static_cast<std::size_t>(index)].link.width;
    if (width == 0 || width >= old.link.width) continue;  // 0: not told
    std::printf("%s %s: x%u was x%u\n", old.address.to_string().c_str(), old.name.c_str(), width, old.link.width);
    ++worse;
  }
  for (const gigabar::Nic& old : before.nics) {
    const int index = now.find_nic(old.name);
    if (index < 0) continue;  // its PCI function was told above
    for (const gigabar::RdmaPort& port : now.nics[static_cast<std::size_t>(index)].ports) {
      for (const gigabar::RdmaPort& old_port : old.ports) {
        if (port.number != old_port.number || old_port.state != "ACTIVE" || port.state == "ACTIVE") continue;
        std::printf("%s/%d is %s\n", old.name.c_str(), port.number, port.state.c_str());
        ++worse;
      }
    }
  }
  return worse;
}

int main(int count, char** words) {
  const std::string file = count > 1 ? words[1] : "machine.tar";
  const gigabar::Machine here = gigabar::Machine::here();
  if (!std::filesystem::exists(file)) {
    if (const auto captured = here.capture(file); !captured) return std::puts(captured.message().c_str()), 2;
    return std::printf("captured into %s\n", file.c_str()), 0;
  }
  const auto machine = gigabar::Machine::open(file);
  if (!machine) return std::puts(machine.message().c_str()), 2;
  const auto before = gigabar::discover_topology(*machine);
  if (!before) return std::puts(before.message().c_str()), 2;
  const auto now = gigabar::discover_topology(here);
  if (!now) return std::puts(now.message().c_str()), 2;

  const int worse = compare(*before, *now);
  std::printf("%zu PCI devices, %zu GPUs, %zu NICs: %d worse than in %s\n", now->pci.size(), now->gpus.size(), now->nics.size(),
              worse, machine->origin().c_str());
  return worse == 0 ? 0 : 1;
}
