# SPDX-License-Identifier: Apache-2.0
"""The small server after gdrdrv got another number: the node of an earlier start is left, and its number is another driver's now."""

from .small_server import SmallServer


def build():
    machine = SmallServer("stale_gdrdrv", "A server whose node of gdrdrv has the number of another driver.").machine
    machine.files["/proc/devices"] = machine.files["/proc/devices"].replace("236 gdrdrv", "236 drm")
    return machine.finish()
