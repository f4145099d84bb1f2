# SPDX-License-Identifier: Apache-2.0
"""The small server with two bad links: the GPU's runs on eight of its sixteen lanes, the far adapter's at half of its speed."""

from .small_server import SmallServer


def build():
    server = SmallServer("link_x8", "A server with a GPU in half a slot and an adapter at half speed.")
    for end in (server.gpu, server.above_gpu):
        end.width = 8
    for end in (server.far_nic.pci, server.far_root):
        end.speed = 8.0
    server.machine.answers["gpus"][0]["pcie_width"] = 8
    return server.machine.finish()
