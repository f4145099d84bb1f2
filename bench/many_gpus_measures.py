# SPDX-License-Identifier: Apache-2.0
"""What bench/many_gpus.py measures between each two GPUs."""

import dataclasses


@dataclasses.dataclass
class Measure:
    """One figure of each pair of GPUs."""
    name: str  # in the JSON
    what: str
    command: list
    many: list  # as Bench.amount takes them
    few: list
    figure: str  # in the first result of the command
    unit: str
    scale: float = 1
    is_directed: bool = False  # the way back is measured too
    starts: int = 1  # the least of so many: where in the GPU's cache a flag lies changes from start to start


LATENCY = ["latency", "-d", "cuda", "D", "D", "--op", "write", "-c"]
FEW = ["-i", "3", "-x", "0"]
MANY_SCOPES, FEW_SCOPES = ["--threads", "256", "--blocks", "32", "-W", "256"], ["--threads", "2", "-W", "2", *FEW]
PAIR_MEASURES = [
    Measure("kernel_notify", "notification between kernels", ["device-latency", "--op", "notify"], ["-i", "5000", "-x", "500"], FEW, "p50_us", "us", starts=3),
    Measure("rank_latency_8", "8 B between ranks", [*LATENCY, "-m", "8:8"], ["-i", "2000", "-x", "100"], FEW, "p50_us", "us"),
    Measure("rank_bandwidth", "64 MiB between ranks", ["bw", "-d", "cuda", "D", "D", "--op", "write", "-c"],
            ["-m", "64M:64M", "-W", "16", "-i", "10", "-x", "2"], ["-m", "64K:64K", "-W", "2", *FEW], "p50_mb_per_s", "gb_per_s", 1e-3, True),
    Measure("rank_latency_64k", "64 KiB between ranks", [*LATENCY, "-m", "64K:64K"], ["-i", "500", "-x", "50"], FEW, "p50_us", "us"),
    Measure("rank_latency_16m", "16 MiB between ranks", LATENCY, ["-m", "16M:16M", "-i", "50", "-x", "5"], ["-m", "1M:1M", *FEW], "p50_us", "us"),
]
KERNEL_MEASURES = [
    Measure("kernel_bandwidth", "64 MiB written by kernels", ["device-bw"], ["-m", "64M:64M"],
            ["-m", "64K:64K", "--blocks", "2", "--threads", "2", "-W", "2", *FEW], "gb_per_s", "gb_per_s", is_directed=True),
    Measure("kernel_checked", "64 KiB written by kernels and checked", ["device-latency", "--op", "write-notify", "-m", "64K:64K", "-c"],
            ["-i", "500", "-x", "50"], FEW, "p50_us", "us"),
    Measure("kernel_message", "message of 8 B between kernels", ["device-latency", "--op", "message", "--scope", "warp", "-m", "8:8", "-c"],
            ["-i", "5000", "-x", "500"], FEW, "p50_us", "us"),
    Measure("kernel_message_rate", "messages of 8 B of kernels", ["device-rate", "--op", "message"],
            ["--scope", "warp", *MANY_SCOPES], FEW_SCOPES, "million_per_s", "million_per_s"),
    Measure("kernel_rate", "8 B and notification of kernels", ["device-rate", "--op", "write-notify"], MANY_SCOPES, FEW_SCOPES,
            "million_per_s", "million_per_s"),
]
