# SPDX-License-Identifier: Apache-2.0
"""Building blocks of constructed machines: each writes what the kernel and the drivers would show of it."""
