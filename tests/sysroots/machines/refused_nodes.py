# SPDX-License-Identifier: Apache-2.0
"""The small server as a container sees it that got the nodes by bind mounts only: each is there with its right number and
permissions, and the device cgroup refuses to open it."""

import errno

from .small_server import SmallServer


def build():
    machine = SmallServer("refused_nodes", "A container whose device cgroup refuses every node.").machine
    machine.file("/.dockerenv", "")
    for device in machine.devices.values():
        device["open_errno"] = errno.EPERM
    return machine.finish()
