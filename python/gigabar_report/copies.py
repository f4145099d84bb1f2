# SPDX-License-Identifier: Apache-2.0
"""What `gigabar copylat` measured: the time of a copy by size, of each method."""

from .curves import MAX_SERIES, Chart, Line, Series
from .html import bytes_text, counted, folded, number_text, table

DIRECTIONS = {"to_device": "host to device", "from_device": "device to host"}
KERNEL = "kernel "  # raw ones are in a table: there are many, and their curves nearly coincide
TITLES = {"copy": "Time of one copy", "copy_back_to_back": "Time of a copy, back to back"}


def _by_method(document):
    """Points of p50 and p99 by measure, direction and method."""
    found = {}
    for result in document.root.nodes("results"):
        measure, direction = result.text("measure"), result.text("direction")
        if measure not in TITLES or direction not in DIRECTIONS:
            continue
        size = result.number("bytes")
        for method in result.nodes("methods"):
            p50, p99 = found.setdefault((measure, direction, method.text("name")), ([], []))
            p50.append((size, method.number("p50_us")))
            p99.append((size, method.number("p99_us")))
    return found


def charts(documents, before):
    """One of each direction for single copies, and for copies back to back. `before`: those of them that are of before."""
    grouped = {}
    for document in documents:
        if document.tool != "copylat":
            continue
        mapping = document.root.node("mapping")
        note = f"mapping {mapping.text('backend')}, {mapping.text('type')}" if mapping else ""
        label = f"{'before: ' if document in before else ''}{document.name}"
        for (measure, direction, method), (p50, p99) in _by_method(document).items():
            if method.startswith(KERNEL):
                continue
            lines = [Line("p50", "solid", p50)] + ([Line("p99", "dashed", p99)] if measure == "copy" else [])
            grouped.setdefault((measure, direction), []).append(Series(f"{label}, {method}", note, lines))
    found = []
    for (measure, direction), series in sorted(grouped.items()):
        count = -(-len(series) // MAX_SERIES)
        for number in range(count):
            title = f"{TITLES[measure]}, {DIRECTIONS[direction]}" + (f" ({number + 1} of {count})" if count > 1 else "")
            found.append(Chart(title, "time, µs", series[number * MAX_SERIES:(number + 1) * MAX_SERIES]))
    return found


def kernels(document):
    """The time of each raw kernel by size, a table for each direction."""
    found = {}
    for (measure, direction, method), (p50, _) in _by_method(document).items():
        if method.startswith(KERNEL):
            found.setdefault((measure, direction), {})[method.removeprefix(KERNEL)] = dict(p50)
    tables = []
    for (measure, direction), by_name in found.items():
        sizes = sorted({size for points in by_name.values() for size in points})
        rows = [[bytes_text(int(size)), *(number_text(points.get(size)) for points in by_name.values())] for size in sizes]
        tables.append(table(["size", *by_name], rows, numbers=range(1, len(by_name) + 1), caption=f"{TITLES[measure]}, {DIRECTIONS[direction]}, p50, µs"))
    return folded(f"Raw kernels, {document.name}", tables) if tables else None


def overheads(documents):
    """What a call adds to the bare copy."""
    rows = [[document.name, DIRECTIONS.get(result.text("direction"), ""), f"{result.number('bytes'):.0f} B",
             *(number_text(result.number(key)) for key in ("overhead_ns", "call_ns", "bare_ns"))]
            for document in documents if document.tool == "copylat" for result in document.root.nodes("results") if result.text("measure") == "call_overhead"]
    return table(["document", "direction", "size", "overhead, ns", "call, ns", "bare kernel and fence, ns"], rows, numbers=(2, 3, 4, 5), caption="What a call adds to the copy") if rows else None


def verdict(document):
    """A word with a sign, and one line."""
    results = [result for result in document.root.nodes("results") if result.text("measure") in TITLES]
    checked = sum(1 for result in results if result.flag("data_checked"))
    text = f"{document.name}: copies of {counted(len({result.number('bytes') for result in results}), 'size')}; "
    text += "all data right" if results and checked == len(results) else f"data compared in {checked} of {len(results)} measurements, and right"
    first = next((result for result in results if result.text("measure") == "copy" and result.nodes("methods")), None)
    if first:
        method = first.nodes("methods")[0]
        text += f"; {method.text('name')} of {first.number('bytes'):.0f} B takes {number_text(method.number('p50_us'))} µs"
        text += f", and {first.text('baseline')} {number_text(first.number('baseline_over_path'))} times as long"
    return "PASS" if results and checked == len(results) else "note", text
