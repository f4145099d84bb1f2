# SPDX-License-Identifier: Apache-2.0
"""The small server on a subnet whose manager made the near adapter's port a limited member of its only partition."""

from .small_server import SmallServer


def build():
    server = SmallServer("limited_member", "A server whose adapter is a limited member of its partition.")
    port = f"{server.near_nic.pci.path}/infiniband/{server.near_nic.name}/ports/1"
    server.machine.file(f"{port}/pkeys/0", "0x7fff")
    return server.machine.finish()
