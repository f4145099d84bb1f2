// SPDX-License-Identifier: Apache-2.0
// The table of the checks of PCI, IOMMU and virtual machines.
#include "doctor/checks_pci.hpp"

#include <array>

namespace gigabar::doctor {

std::span<const Check> pci_checks() {
  static const std::array<Check, 10> checks{
      vm_detect_check(),  // first: it tells which rules hold for the others
      pci_link_check(),    pci_bottleneck_check(), pci_topo_check(), pci_acs_check(),       iommu_mode_check(),
      iommu_group_check(), pci_mps_check(),        pci_ro_check(),   pci_vendorp2p_check(),
  };
  return checks;
}

}  // namespace gigabar::doctor
