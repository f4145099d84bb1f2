# SPDX-License-Identifier: Apache-2.0
"""A container on the small server that was given the GPU but not /dev/infiniband. Its root lacks CAP_SYS_ADMIN, as is usual."""

from .small_server import SmallServer


def build():
    server = SmallServer("container_no_infiniband", "A container without the device nodes of InfiniBand.", can_lock_memory=False,
                         memlock_bytes=8 << 20)
    machine = server.machine
    machine.remove("/dev/infiniband")
    machine.remove("/dev/gdrdrv")
    machine.remove("/boot/config-6.8.0-79-generic")
    machine.file("/.dockerenv", "")
    machine.file("/proc/1/cgroup", "0::/")
    # The library is installed, but lists no device that it cannot open.
    machine.answers["rdma_devices"] = []
    return machine.finish().without_privileges()
