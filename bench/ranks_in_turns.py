#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares bandwidths between two ranks of this host with what limits them, in turns on one machine.

usage: bench/ranks_in_turns.py [options]

  copies   `gigabar bw`, GPU to GPU, beside `gigabar streams`: the copy engine of the reading and of the writing GPU in one process
           (cudaMemcpyPeerAsync), the better of the two
  tcp      `gigabar bw`, GPU to GPU over tcp and loopback, beside host memory to host memory over the same
  kernels  `gigabar device-bw`: writes that one block posts to one queue of the software HCA, beside `gigabar bw`, GPU to GPU. On a
           machine with one GPU CUDA's Multi-Process Service must run (nvidia-cuda-mps-control -d)

Each round takes every size once, by each contender. The figure of a contender is the median of its rounds (of a round: the median of
its windows or repeats), and the ratio is that of the ranks' figure to the other.

exit code: 0 every ratio is within its limit; 1 one is not, or a round failed; 2 wrong options.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys

import reports

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH_BYTES = 4 << 30  # that the copies of a round move, at most
MOST_COPIES = 512


@dataclasses.dataclass
class Comparison:
    sizes_mib: list
    limit: float  # least ratio
    ranks: str
    beside: list


COMPARISONS = {
    "copies": Comparison([4, 16, 64], 0.95, "D D local", ["ce-pull", "ce-push"]),
    "tcp": Comparison([16], 0.90, "D D tcp", ["H H tcp"]),
    "kernels": Comparison([4, 16, 64], 0.90, "softhca", ["D D local"]),
}


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS)
    parser.add_argument("--gigabar", default=str(ROOT / "build/release/bin/gigabar"), help="the program (default %(default)s)")
    parser.add_argument("--what", default=",".join(COMPARISONS), help="(default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write machine, date, command and all rounds")
    options = parser.parse_args(words)
    if options.rounds < 1:
        parser.error("--rounds is at least 1")
    for name in options.what.split(","):
        if name not in COMPARISONS:
            parser.error(f"--what '{name}' is not one of {', '.join(COMPARISONS)}")
    return options


def copies(options, executor, mib):
    count = max(16, min(MOST_COPIES, BATCH_BYTES // (mib << 20)))
    transfer = f"gpu0->gpu1 {executor} bytes={mib}M iterations={count}"
    report = reports.report_of([options.gigabar, "streams", "-t", transfer, "--repeats", "3", "--no-verify"])
    return report, report["results"][0]["transfers"][0]["life_gb_per_s"]["median"]


def ranks(options, contender, mib):
    first, second, transport = contender.split()
    ends = ["-d", "host" if first + second == "HH" else "cuda", first, second]
    report = reports.report_of([options.gigabar, "bw", *ends, "--op", "write", "--transport", transport, "-m", f"{mib}M:{mib}M"])
    return report, report["results"][0]["p50_mb_per_s"] / 1e3


def kernels(options, _, mib):
    plan = ["--op", "write", "--engine", "software_hca", "--queues", "1", "--blocks", "1", "-m", f"{mib}M:{mib}M"]
    report = reports.report_of([options.gigabar, "device-bw", *plan])
    return report, report["results"][0]["gb_per_s"]


def measure(options, contender, mib):
    by = copies if contender.startswith("ce-") else kernels if contender == "softhca" else ranks
    return by(options, contender, mib)


def main(words):
    options = parse(words)
    results, head, has_failed = [], None, False
    print(f"{'':>8} {'MiB':>5} {'ranks, GB/s':>12} {'beside, GB/s':>13} {'ratio':>6}")
    for name in options.what.split(","):
        comparison = COMPARISONS[name]
        contenders = [*comparison.beside, comparison.ranks]
        rounds = {(mib, contender): [] for mib in comparison.sizes_mib for contender in contenders}
        for _ in range(options.rounds):
            for mib, contender in rounds:
                report, rate = measure(options, contender, mib)
                rounds[mib, contender].append(rate)
                if contender == comparison.ranks:
                    head = head or report
        for mib in comparison.sizes_mib:
            medians = {contender: statistics.median(rounds[mib, contender]) for contender in contenders}
            beside = max(medians[contender] for contender in comparison.beside)
            ratio = medians[comparison.ranks] / beside
            has_failed |= ratio < comparison.limit
            results.append({"comparison": name, "bytes": mib << 20, "ranks_gb_per_s": medians[comparison.ranks], "beside_gb_per_s": beside,
                            "ratio": ratio, "least_ratio": comparison.limit,
                            "rounds_gb_per_s": {contender: rounds[mib, contender] for contender in contenders}})
            print(f"{name:>8} {mib:>5} {medians[comparison.ranks]:>12.1f} {beside:>13.1f} {ratio:>6.3f}", flush=True)
    if options.json:
        command = ["bench/ranks_in_turns.py", "--what", options.what, "--rounds", str(options.rounds)]
        reports.write(options.json, "ranks_in_turns", command, head, results=results)
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
