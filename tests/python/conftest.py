# SPDX-License-Identifier: Apache-2.0
"""Every test runs on two stand-in devices."""

import os

os.environ["GIGABAR_STAND_IN"] = "2"
