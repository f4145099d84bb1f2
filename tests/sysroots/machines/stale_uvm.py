# SPDX-License-Identifier: Apache-2.0
"""The small server after nvidia-uvm got another number: without that node CUDA does not start."""

from .small_server import SmallServer


def build():
    machine = SmallServer("stale_uvm", "A server whose node of nvidia-uvm has another number than the driver.").machine
    machine.device("/dev/nvidia-uvm", 511, 0)
    return machine.finish()
