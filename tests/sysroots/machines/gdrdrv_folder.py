# SPDX-License-Identifier: Apache-2.0
"""The small server with a folder in the place of gdrdrv's node: a bind mount makes one where the host has no node."""

from .small_server import SmallServer


def build():
    machine = SmallServer("gdrdrv_folder", "A server with a folder in the place of gdrdrv's node.").machine
    machine.remove("/dev/gdrdrv")
    machine.folder("/dev/gdrdrv")
    return machine.finish()
