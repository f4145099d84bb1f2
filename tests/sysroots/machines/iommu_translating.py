# SPDX-License-Identifier: Apache-2.0
"""The small server whose IOMMU translates what devices send: every group is of the type DMA-FQ."""

from .small_server import SmallServer


def build():
    server = SmallServer("iommu_translating", "A server whose IOMMU translates.", iommu_type="DMA-FQ", arguments="intel_iommu=on")
    return server.machine.finish()
