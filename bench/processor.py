# SPDX-License-Identifier: Apache-2.0
"""What the machine of a result is called."""

import platform


def processor() -> str:
    """The processor's name, or its architecture."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())
