# SPDX-License-Identifier: Apache-2.0
"""The small server after its GPU fell off the bus: the device reads all ones, the libraries see no GPU, the kernel's log tells."""

from blocks import gpu, host

from .small_server import SmallServer


def build():
    server = SmallServer("fallen_gpu", "A server whose GPU fell off the bus.")
    machine, lost = server.machine, server.gpu
    machine.finish()
    machine.file(f"{lost.path}/config", b"\xff" * 4096)
    machine.files_in(lost.path, {"revision": "0xff", "current_link_speed": "Unknown", "current_link_width": "63"})
    machine.answers["gpus"] = []
    host.kernel_log(machine, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {gpu.DRIVER}  Release Build",
                    f"NVRM: Xid (PCI:{lost.address[:-2]}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    return machine
