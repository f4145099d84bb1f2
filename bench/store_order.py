#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what order costs between two GPUs in reach of each other's stores, and counts what is seen without it: one JSON file.

usage: bench/store_order.py [options]

Needs nvcc and two GPUs with peer access. Builds bench/store_order.cu, whose kernels use neither Gigabar nor another library.

exit code: 0 everything was measured; 1 something failed; 2 wrong options.
"""

import argparse
import pathlib
import sys
import tempfile

import reports

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "bench/store_order.cu"


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="tells of the machine (default %(default)s)")
    parser.add_argument("--nvcc", default="nvcc", help="(default %(default)s)")
    parser.add_argument("--json", metavar="FILE", required=True, help="write machine, date, command and results")
    return parser.parse_args(words)


def main(words):
    options = parse(words)
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "store_order"
        reports.run([options.nvcc, "-std=c++17", "-O2", "-arch=native", str(SOURCE), "-o", str(program)])
        lines = [line.split() for line in reports.run([str(program)]).splitlines()]
    results = [{"what": what, "fence": fence, "load_blocks": int(blocks), **({"early_count": int(figure)} if what == "early" else {"us": float(figure)})}
               for what, fence, blocks, figure in lines]
    for what, fence, blocks, figure in lines:
        print(f"{what:>8} fence {fence:>6} {blocks:>4} blocks {figure:>10}", flush=True)
    head = reports.report_of([options.gigabar, "device-latency", "--op", "notify", "-i", "1000"])
    reports.write(options.json, "store_order", ["bench/store_order.py"], head, rounds=200_000, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
