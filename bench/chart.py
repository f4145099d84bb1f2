#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/copies-{light,dark}.svg, the README's chart, from bench/results/h200-copylat.json: one copy by its size, beside cudaMemcpy;
and docs/pairs-{light,dark}.svg from bench/results/many-gpus-pairs.json: figures of each pair of GPUs. Without a file there is no chart.

Needs matplotlib (pip install matplotlib==3.11.2; other versions draw the same with other bytes). With --check nothing is written, and the
exit status is 1 when a chart is not what the file says.
"""

import argparse
import io
import json
import pathlib
import sys

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from tables import RESULTS, ROOT, bytes_text, us

LARGEST_BYTES = 1 << 20
THEMES = {
    "light": {"text": "#1f2328", "grid": "#d1d9e0", "to_device": "#0969da", "from_device": "#bc4c00", "least": "#ddf4ff", "most": "#54aeff"},
    "dark": {"text": "#e6edf3", "grid": "#3d444d", "to_device": "#58a6ff", "from_device": "#ffa657", "least": "#0c2d6b", "most": "#1f6feb"},
}
LINES = {
    ("to_device", "copy_to"): "Gigabar, CPU to GPU",
    ("to_device", "cudaMemcpy"): "cudaMemcpy, CPU to GPU",
    ("from_device", "copy_from"): "Gigabar, GPU to CPU",
    ("from_device", "cudaMemcpy"): "cudaMemcpy, GPU to CPU",
}


MATRICES = {"kernel_notify": "notification between kernels, µs", "rank_latency_8": "8 B between ranks, µs",
            "rank_bandwidth": "64 MiB between ranks, GB/s"}


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


def use(colours):
    """Text stays text, and the same data give the same bytes."""
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gigabar", "font.family": "sans-serif", "font.size": 10,
                                "text.color": colours["text"], "axes.labelcolor": colours["text"], "xtick.color": colours["text"],
                                "ytick.color": colours["text"], "axes.edgecolor": colours["grid"]})


def svg_of(figure):
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def copies(document, colours):
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
    return svg_of(figure)


def pairs(document, colours):
    """A matrix for each figure: from the GPU of the row to that of the column."""
    matrices = [(MATRICES[result["measure"]], result["matrix"]) for result in document["results"] if result["measure"] in MATRICES]
    count = len(document["devices"])
    figure = Figure(figsize=(3.4 * len(matrices), 3.6), layout="constrained")
    shades = LinearSegmentedColormap.from_list("shades", [colours["least"], colours["most"]])
    for axes, (title, matrix) in zip(figure.subplots(1, len(matrices), squeeze=False)[0], matrices):
        cells = [[float("nan") if cell is None else cell for cell in row] for row in matrix]
        known = [cell for row in matrix for cell in row if cell is not None]
        # Small differences look small.
        axes.pcolormesh(cells, vmin=min(*known, max(known) / 1.2), vmax=max(*known, min(known) * 1.2), cmap=shades, edgecolors=colours["grid"], linewidth=0.6)
        for row, column in ((row, column) for row in range(count) for column in range(count) if matrix[row][column] is not None):
            axes.text(column + 0.5, row + 0.5, us(matrix[row][column]), ha="center", va="center", fontsize=7 if count > 4 else 10)
        ticks = [index + 0.5 for index in range(count)]
        axes.set(aspect="equal", xticks=ticks, yticks=ticks, xticklabels=range(count), yticklabels=range(count), xlabel="to GPU")
        axes.set_ylabel("from GPU")
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.set_title(title, loc="left", fontsize=10)
    figure.suptitle(f"{count} × {document['devices'][0]['name']}", fontsize=11)
    return svg_of(figure)


CHARTS = {"copies": (copies, "h200-copylat"), "pairs": (pairs, "many-gpus-pairs")}


def draw(name, theme):
    """Nothing where the figures were not measured yet."""
    make, source = CHARTS[name]
    path = RESULTS / f"{source}.json"
    if not path.exists():
        return None
    document = json.loads(path.read_text())
    if document["device"]["is_stand_in"]:
        sys.exit(f"{path.relative_to(ROOT)}: figures of a stand-in device say nothing about a GPU")
    use(THEMES[theme])
    return make(document, THEMES[theme])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a chart is not what its file says")
    check = parser.parse_args().check
    for name, theme in ((name, theme) for name in CHARTS for theme in THEMES):
        path = ROOT / "docs" / f"{name}-{theme}.svg"
        drawn = draw(name, theme)
        if not check:
            path.unlink(missing_ok=True) if drawn is None else path.write_text(drawn)
        elif (path.read_text() if path.exists() else None) != drawn:
            sys.exit(f"{path.relative_to(ROOT)} differs from bench/results/{CHARTS[name][1]}.json; run bench/chart.py")


if __name__ == "__main__":
    main()
