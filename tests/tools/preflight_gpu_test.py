#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `gigabar preflight` on a GPU of the fake driver libraries, whose copies are the CPU's: far slower than the link that NVML tells, as
a broken link would be. Options and exit status as command_line_test.py.
"""

import os
import re
import subprocess
import sys

import command_line_test as shared
from command_line_test import expect, run

GPU = "0000:06:00.0"
# What a machine without the kernel driver cannot have.
NOT_THERE = "drv,mod,libs,probe.mapping,probe.copy,probe.link,pci,gpu,numa,vm"


def preflight(nvml, *arguments):
    fakes = os.path.join(os.path.dirname(os.path.abspath(shared.OPTIONS.program)), "..", "tests", "fakes")
    return run("preflight", "--format", "npd", "--ignore", NOT_THERE, "--budget", "60", *arguments, GIGABAR_STAND_IN="",
               GIGABAR_CUDA_LIBRARY=os.path.join(fakes, "cuda", "libcuda.so.1"),
               GIGABAR_NVML_LIBRARY=os.path.join(fakes, "nvml", "libnvidia-ml.so.1"), GIGABAR_FAKE_NVML_GPUS=f"{GPU} {nvml}")


def test_preflight_gpu_is_fit():
    outcome = preflight("")
    expect(outcome.status == 0 and outcome.out.startswith("fit: 1 GPU, verified bytes on 2 paths"), "a link of unknown rate", outcome)
    expect("[stand-in]" not in outcome.out, "a GPU is called a stand-in", outcome)


def test_preflight_gpu_with_a_broken_link():
    outcome = preflight("pcie=6x16")  # 121 GB/s
    expect(outcome.status == 1, "a slow link", outcome)
    expect(re.match(rf"unfit: GPU {GPU}: (host->gpu0|gpu0->host): verified bytes at [0-9.]+ GB/s, \d+ % of PCIe 6.0 x16", outcome.out), "the line", outcome)


def test_preflight_gpu_whose_link_other_work_uses():
    with subprocess.Popen(["sleep", "100"]) as other:
        outcome = preflight(f"pcie=6x16 traffic=90000 process={other.pid}")
        other.kill()
    expect(outcome.status == 2, "a link that is loaded", outcome)
    expect(f"90.0 GB/s cross the PCIe link of GPU {GPU} (process {other.pid} 'sleep')" in outcome.out, "the reason", outcome)


def test_preflight_gpu_idle_link_of_unknown_rate():
    outcome = preflight("traffic=0", "--require", "host->gpu>=1000GB/s")
    expect(outcome.status == 1 and "other work" not in outcome.out, "no traffic is no load", outcome)


def test_preflight_gpu_link_that_a_job_can_live_with():
    outcome = preflight("pcie=6x16", "--require", "host->gpu>=0.001, gpu->host>=0.1GB/s")
    expect(outcome.status == 0, "less is required", outcome)


CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    shared.CASES = CASES
    sys.exit(shared.main())
