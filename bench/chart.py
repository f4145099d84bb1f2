#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the README's chart, docs/copies-{light,dark}.svg, from bench/results/h200-copylat.json: one copy by its size, beside cudaMemcpy.

Needs matplotlib (pip install matplotlib==3.11.2; other versions draw the same with other bytes). With --check nothing is written, and the
exit status is 1 when a chart is not what the file says.
"""

import argparse
import io
import json
import pathlib
import sys

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tables import RESULTS, ROOT, bytes_text

SOURCE = RESULTS / "h200-copylat.json"
LARGEST_BYTES = 1 << 20
THEMES = {
    "light": {"text": "#1f2328", "grid": "#d1d9e0", "to_device": "#0969da", "from_device": "#bc4c00"},
    "dark": {"text": "#e6edf3", "grid": "#3d444d", "to_device": "#58a6ff", "from_device": "#ffa657"},
}
LINES = {
    ("to_device", "copy_to"): "Gigabar, CPU to GPU",
    ("to_device", "cudaMemcpy"): "cudaMemcpy, CPU to GPU",
    ("from_device", "copy_from"): "Gigabar, GPU to CPU",
    ("from_device", "cudaMemcpy"): "cudaMemcpy, GPU to CPU",
}


def points(document, direction, method):
    """Sizes and p50 in µs."""
    found = [
        (result["bytes"], each["p50_us"])
        for result in document["results"]
        if result["measure"] == "copy" and result["direction"] == direction and result["bytes"] <= LARGEST_BYTES
        for each in result["methods"]
        if each["name"] == method
    ]
    return zip(*sorted(found))


def chart(document, theme):
    colours = THEMES[theme]
    # Text stays text, and the same data give the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gigabar", "font.family": "sans-serif", "font.size": 10,
                                "text.color": colours["text"], "axes.labelcolor": colours["text"], "xtick.color": colours["text"],
                                "ytick.color": colours["text"], "axes.edgecolor": colours["grid"]})
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes = figure.subplots()
    for (direction, method), label in LINES.items():
        ours = method.startswith("copy")
        axes.plot(*points(document, direction, method), label=label, color=colours[direction], linewidth=2.2 if ours else 1.4,
                  linestyle="-" if ours else "--")
    axes.set(xscale="log", yscale="log", xlim=(1, LARGEST_BYTES), xlabel="bytes of one copy", ylabel="time, µs (p50)")
    axes.set_title(f"One copy with the CPU: {document['device']['name']}, no kernel module", loc="left", fontsize=11)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(round(count))))
    axes.set_xticks([8 ** power for power in range(7)] + [LARGEST_BYTES])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g}"))
    axes.grid(color=colours["grid"], linewidth=0.6)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a chart is not what its file says")
    check = parser.parse_args().check
    document = json.loads(SOURCE.read_text())
    for theme in THEMES:
        path = ROOT / "docs" / f"copies-{theme}.svg"
        drawn = chart(document, theme)
        if not check:
            path.write_text(drawn)
        elif not path.exists() or path.read_text() != drawn:
            sys.exit(f"{path.relative_to(ROOT)} differs from {SOURCE.relative_to(ROOT)}; run bench/chart.py")


if __name__ == "__main__":
    main()
