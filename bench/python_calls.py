#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times calls of the Python package beside the same calls in C++.

usage: python_calls.py CXX BUILD RESULT.json, with a Python in which the package is installed. CXX compiles a loop over the headers,
which is linked with libgigabar of the folder BUILD. Both run on the same kind of memory, in turns. Times are of the processor, so that
other work of the machine counts little, and medians of the rounds. Where there is a GPU it is its memory, and where torch and cupy are
installed that of their tensors too.
"""

import datetime
import getpass
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gigabar
from processor import processor

ROUNDS, CALLS, PIECES = 9, 200_000, 1000
ROOT = Path(__file__).parents[1]

LOOP = """
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include "gigabar/copy.hpp"
int main() {
  auto memory = gigabar::DeviceMemory::allocate(0, 1 << 20);
  auto mapping = gigabar::map(memory->address(), 1 << 20);
  if (!mapping) return 1;
  unsigned long long value = 1;
  const int calls = CALLS;
  const std::clock_t begin = std::clock();
  for (int i = 0; i < calls; ++i) {
    if (!gigabar::copy_to(*mapping, 64, &value, 8)) return 1;
  }
  std::printf("%f\\n", static_cast<double>(std::clock() - begin) * (1e9 / CLOCKS_PER_SEC) / calls);
}
"""


def machine() -> dict[str, object]:
    return {"host": platform.node(), "cpu": processor(), "kernel": platform.release(), "cores": os.cpu_count(), "user": getpass.getuser()}


def build_loop(compiler: str, build: Path, folder: Path) -> Path:
    source, program = folder / "loop.cpp", folder / "loop"
    source.write_text(LOOP.replace("CALLS", str(CALLS)))
    library = build / "src" / "gigabar"
    subprocess.run(
        [compiler, "-std=c++20", "-O2", f"-I{ROOT / 'include'}", source, "-o", program, f"-L{library}", "-lgigabar", f"-Wl,-rpath,{library}"],
        check=True,
    )
    return program


def version_of(library: str) -> str:
    return str(__import__(library).__version__)


class Foreign:
    """Memory of another library's tensor: what m.write stores there is what the library sees."""

    def __init__(self, library: str) -> None:
        module = __import__(library)
        where = {"device": "cuda"} if library == "torch" else {}
        self.memory = module.zeros(1 << 20, dtype=module.uint8, **where)
        self.mapped = gigabar.map(self.memory)

    def ns_per_write(self, data: bytes) -> float:
        names = {"m": self.mapped, "data": data}
        ns = timeit.timeit("m.write(data, 64)", timer=time.process_time, globals=names, number=CALLS) / CALLS * 1e9
        if bytes(self.memory[64:72].tolist()) != data:
            raise SystemExit("the library does not see what was written")
        return ns


def foreign_libraries() -> list[str]:
    try:
        import torch

        has_gpu = torch.cuda.is_available()
    except ImportError:
        return []
    return ["torch", *(["cupy"] if find_spec("cupy") else [])] if has_gpu else []


def main() -> None:
    compiler, build, result = sys.argv[1], Path(sys.argv[2]).resolve(), Path(sys.argv[3])
    memory = gigabar.allocate(1 << 20)
    data = (1).to_bytes(8, "little")
    offsets = memoryview(bytearray(b"".join((i * 64).to_bytes(8, "little") for i in range(PIECES)))).cast("Q")
    many = bytes(8 * PIECES)
    others = {library: Foreign(library) for library in foreign_libraries()}
    ns: dict[str, list[float]] = {"cxx_copy_to": [], "write": [], "write_many": [], **{library: [] for library in others}}
    with tempfile.TemporaryDirectory() as folder, gigabar.map(memory) as mapped:
        loop = build_loop(compiler, build, Path(folder))
        names = {"m": mapped, "data": data, "many": many, "offsets": offsets}
        for _ in range(ROUNDS):
            said = subprocess.run([loop], capture_output=True, text=True, check=True, timeout=60).stdout
            ns["cxx_copy_to"].append(float(said))
            ns["write"].append(timeit.timeit("m.write(data, 64)", timer=time.process_time, globals=names, number=CALLS) / CALLS * 1e9)
            seconds = timeit.timeit("m.write_many(many, offsets)", timer=time.process_time, globals=names, number=CALLS // PIECES)
            ns["write_many"].append(seconds / (CALLS // PIECES * PIECES) * 1e9)
            for library, other in others.items():
                ns[library].append(other.ns_per_write(data))
        backend, device = mapped.backend, gigabar.devices()[mapped.device]
    rows = [("C++ copy_to", "cxx_copy_to", 1), ("Mapping.write", "write", 1), ("Mapping.write_many", "write_many", PIECES)]
    rows += [("Mapping.write", library, 1) for library in others]
    document: dict[str, Any] = {
        "schema": 1,
        "tool": "python_calls",
        "command": ["bench/python_calls.py", *sys.argv[1:]],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "machine": machine(),
        "device": device.to_dict(),
        "mapping": {"backend": backend},
        "versions": {"python": platform.python_version(), "gigabar": version("gigabar"), **{library: version_of(library) for library in others}},
        "units": {"*_ns": "nanoseconds of the processor for each write"},
        "results": [
            {
                "call": call,
                "tensor_of": key if key in others else None,
                "bytes": 8,
                "writes_per_call": writes,
                "median_ns": round(statistics.median(ns[key]), 2),
                "samples_ns": [round(one, 2) for one in ns[key]],
            }
            for call, key, writes in rows
        ],
    }
    result.write_text(json.dumps(document, indent=1) + "\n")
    print(", ".join(f"{one['call']}: {one['median_ns']} ns" for one in document["results"]))


if __name__ == "__main__":
    main()
