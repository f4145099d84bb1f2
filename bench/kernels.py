#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what kernels of two ranks of this host do with each other: one JSON file of many runs of `gigabar device-*`.

usage: bench/kernels.py [options]

On a machine with one GPU both ranks share it; there CUDA's Multi-Process Service must run (nvidia-cuda-mps-control -d), because
otherwise the ranks take turns, and the figures are those of the scheduler.

exit code: 0 everything was measured; 1 a run failed; 2 wrong options.
"""

import argparse
import pathlib
import sys

import reports

ROOT = pathlib.Path(__file__).resolve().parent.parent

SOFTHCA = ["--queues", "16", "--proxies", "4"]
RUNS = [
    ["device-latency", "--op", "notify"],
    ["device-latency", "--op", "notify-ordered"],
    ["device-latency", "--op", "payload"],
    ["device-latency", "--op", "fetch-add"],
    ["device-latency", "--op", "compare-swap"],
    ["device-latency", "--op", "barrier"],
    ["device-latency", "--op", "write-notify", "--scope", "thread", "-m", "8:8"],
    ["device-latency", "--op", "write-notify", "--scope", "warp", "-m", "8:8"],
    ["device-latency", "--op", "write-notify", "--scope", "block", "-m", "8:1M"],
    ["device-latency", "--op", "message", "--scope", "warp", "-m", "8:8"],
    ["device-latency", "--op", "message", "--scope", "block", "-m", "1536:48K"],
    ["device-latency", "--op", "reply", "--scope", "warp", "-m", "8:8"],
    ["device-latency", "--op", "reply", "--scope", "block", "-m", "1536:48K"],
    ["device-latency", "--op", "write-notify", "--scope", "blocks", "-m", "64K:4M"],
    ["device-latency", "--op", "write-count", "--scope", "blocks", "-m", "64K:4M"],
    ["device-latency", "--op", "read", "--scope", "block", "-m", "8:1M"],
    ["device-bw", "--blocks", "16", "-m", "64M:64M"],
    ["device-bw", "--blocks", "32", "-m", "64M:64M"],
    ["device-bw", "--blocks", "64", "-m", "64M:64M"],
    ["device-bw", "--blocks", "128", "--threads", "128", "-m", "64M:64M"],
    ["device-rate", "--op", "write-notify"],
    ["device-rate", "--op", "write-notify", "--threads", "256", "--blocks", "32", "-W", "256"],
    ["device-rate", "--op", "message", "--scope", "warp", "--threads", "256", "--blocks", "32", "-W", "256"],
    ["device-latency", "--op", "notify", "--queues", "1"],
    ["device-latency", "--op", "write-notify", "--scope", "thread", "-m", "8:8", "--queues", "1"],
    ["device-rate", "--op", "write-notify", "--queues", "1"],
    ["device-rate", "--op", "write-notify", "--threads", "16", *SOFTHCA],
    ["device-rate", "--op", "write-notify", "--blocks", "16", *SOFTHCA],
]


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each run; the one with the median first figure is kept (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", required=True, help="write machine, date, commands and results")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    return options


def figure_of(result):
    return next(result[name] for name in ("million_per_s", "gb_per_s", "p50_us") if name in result)


def main(words):
    options = parse(words)
    rounds = [[reports.report_of([options.gigabar, *run]) for run in RUNS] for _ in range(options.rounds)]
    runs = []
    for index, run in enumerate(RUNS):
        ranked = sorted((one[index] for one in rounds), key=lambda report: figure_of(report["results"][0]))
        kept = ranked[(len(ranked) - 1) // 2]
        figures = [figure_of(one[index]["results"][0]) for one in rounds]
        runs.append({"command": ["gigabar", *run], "results": kept["results"], "rounds": figures})
        print(f"{' '.join(run)}: {' '.join(f'{figure:.3f}' for figure in figures)}", flush=True)
    reports.write(options.json, "kernels", ["bench/kernels.py"], rounds[0][0], units=rounds[0][0]["units"], results=runs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
