#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times calls of the Python package beside the same calls in C++.

usage: python_calls.py CXX BUILD RESULT.json, with a Python in which the package is installed. CXX compiles a loop over the headers,
which is linked with libgigabar of the folder BUILD. Both run on the same kind of memory, in turns; times are medians of the rounds.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

import gigabar

ROUNDS, CALLS, PIECES = 9, 200_000, 1000
ROOT = Path(__file__).parents[1]

LOOP = """
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include "gigabar/copy.hpp"
int main() {
  auto memory = gigabar::DeviceMemory::allocate(0, 1 << 20);
  auto mapping = gigabar::map(memory->address(), 1 << 20);
  if (!mapping) return 1;
  unsigned long long value = 1;
  const int calls = CALLS;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    if (!gigabar::copy_to(*mapping, 64, &value, 8)) return 1;
  }
  const std::chrono::duration<double, std::nano> all = std::chrono::steady_clock::now() - begin;
  std::printf("%f\\n", all.count() / calls);
}
"""


def build_loop(compiler: str, build: Path, folder: Path) -> Path:
    source, program = folder / "loop.cpp", folder / "loop"
    source.write_text(LOOP.replace("CALLS", str(CALLS)))
    library = build / "src" / "gigabar"
    subprocess.run(
        [compiler, "-std=c++20", "-O2", f"-I{ROOT / 'include'}", source, "-o", program, f"-L{library}", "-lgigabar", f"-Wl,-rpath,{library}"],
        check=True,
    )
    return program


def main() -> None:
    compiler, build, result = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    memory = gigabar.allocate(1 << 20)
    data = (1).to_bytes(8, "little")
    offsets = memoryview(bytearray(b"".join((i * 64).to_bytes(8, "little") for i in range(PIECES)))).cast("Q")
    many = bytes(8 * PIECES)
    ns: dict[str, list[float]] = {"cxx_copy_to": [], "write": [], "write_many": []}
    with tempfile.TemporaryDirectory() as folder, gigabar.map(memory) as mapped:
        loop = build_loop(compiler, build, Path(folder))
        names = {"m": mapped, "data": data, "many": many, "offsets": offsets}
        for _ in range(ROUNDS):
            said = subprocess.run([loop], capture_output=True, text=True, check=True, timeout=60).stdout
            ns["cxx_copy_to"].append(float(said))
            ns["write"].append(timeit.timeit("m.write(data, 64)", globals=names, number=CALLS) / CALLS * 1e9)
            seconds = timeit.timeit("m.write_many(many, offsets)", globals=names, number=CALLS // PIECES)
            ns["write_many"].append(seconds / (CALLS // PIECES * PIECES) * 1e9)
        median = {name: statistics.median(samples) for name, samples in ns.items()}
        device = gigabar.devices()[0]
        document = {
            "command": " ".join(sys.argv),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "device": device.to_dict(),
            "backend": mapped.backend,
            "bytes": 8,
            "pieces": PIECES,
            "median_ns": {name: round(value, 2) for name, value in median.items()},
            "write_over_cxx_ns": round(median["write"] - median["cxx_copy_to"], 2),
            "samples_ns": {name: [round(one, 2) for one in samples] for name, samples in ns.items()},
        }
    result.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["median_ns"]), "write over C++:", document["write_over_cxx_ns"], "ns")


if __name__ == "__main__":
    main()
