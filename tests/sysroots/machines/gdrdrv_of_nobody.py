# SPDX-License-Identifier: Apache-2.0
"""The small server with a node of gdrdrv whose number no driver has."""

from .small_server import SmallServer


def build():
    machine = SmallServer("gdrdrv_of_nobody", "A server whose node of gdrdrv has a number that nobody has.").machine
    machine.device("/dev/gdrdrv", 242, 0)
    return machine.finish()
