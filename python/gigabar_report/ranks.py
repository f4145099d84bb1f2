# SPDX-License-Identifier: Apache-2.0
"""What `latency`, `bw` and their relatives measured: one chart for each command and operation, with the series of all documents."""

from . import topology
from .curves import MAX_SERIES, Chart, Limit, Line, Series
from .documents import RANKS
from .html import bytes_text

TITLES = {"latency": "Latency between two ranks", "multi-lat": "Latency of several pairs of ranks", "bw": "Bandwidth between two ranks",
          "bibw": "Bandwidth in both directions", "mbw-mr": "Bandwidth of several pairs of ranks"}


def _paths_text(results):
    """"local p2p up to 64 KiB, then staged": where the path changes with the size."""
    runs = []
    for result in sorted(results, key=lambda result: result.number("bytes")):
        path = result.text("path_text", "") or "path not told"
        if not runs or runs[-1][0] != path:
            runs.append([path, 0])
        runs[-1][1] = int(result.number("bytes"))
    if len(runs) == 1:
        return runs[0][0]
    return "; ".join(f"{path} up to {bytes_text(size)}" for path, size in runs)


def _lines(results, is_latency):
    def points(key, factor=1.0):
        return [(result.number("bytes"), result.number(key) * factor) for result in results if result.has(key)]

    if is_latency:
        return [Line("p50", "solid", points("p50_us")), Line("p99", "dashed", points("p99_us"))]
    mean = Line("mean", "solid", points("mb_per_s", 0.001))
    # The slowest hundredth of the rounds is below this rate.
    slow = Line("p99", "dashed", points("p99_mb_per_s", 0.001))
    return [line for line in (mean, slow) if line.points]


def _series_of(document, label):
    """By operation and number of pairs; a run with --compare has a second one of each."""
    by_operation = {}
    for result in document.root.nodes("results"):
        by_operation.setdefault((result.text("kind"), int(result.number("pairs", 1))), []).append(result)
    for (operation, pairs), results in by_operation.items():
        is_latency = "lat" in document.tool
        name = label + (f", {pairs} pairs" if pairs > 1 else "")
        yield operation, Series(name, f"{document.root.text('buffers', '')}, {_paths_text(results)}".strip(", "), _lines(results, is_latency))
        others = [result.node("without_gdr_p2p") for result in results if result.node("without_gdr_p2p")]
        if others:
            yield operation, Series(f"{name}, GDR and p2p forbidden", _paths_text(others), _lines(others, is_latency))


def _limit(document, topologies):
    """Of the link between the GPUs of the first two ranks."""
    devices = [rank.node("device") for rank in document.root.nodes("ranks")[:2]]
    addresses = [device.text("pci", None) if device else None for device in devices]
    if len(addresses) < 2 or None in addresses or len(set(addresses)) < 2:
        return None
    found = topology.limit_between(topologies, addresses)
    return Limit(found[1], found[0]) if found else None


def charts(documents, before):
    """`before`: those of them that are of before."""
    topologies = {document.host: [] for document in documents}
    for document in documents:
        if document.topology():
            topologies[document.host].append(document.topology())
    grouped = {}
    for document in documents:
        if document.tool in RANKS:
            label = f"{'before: ' if document in before else ''}{document.name}"
            for operation, series in _series_of(document, label):
                series_list, limits = grouped.setdefault((document.tool, operation), ([], []))
                series_list.append(series)
                limits.append(_limit(document, topologies[document.host]))
    found = []
    for (tool, operation), (series, limits) in grouped.items():
        is_latency = "lat" in tool
        known = [limit for limit in limits if limit]
        limit = None if is_latency or tool not in ("bw", "bibw") or not known else max(known, key=lambda limit: limit.value)
        if limit and tool == "bibw":
            limit = Limit(f"{limit.name}, both directions", limit.value * 2)
        notes = []
        if not is_latency and limit is None:
            notes.append("The link's limit is not known here: give a document of 'gigabar topology' or 'gigabar survey' of the same host too.")
        if not is_latency:
            notes.append("p99: the rate of the slowest hundredth of the rounds.")
        for begin in range(0, len(series), MAX_SERIES):
            title = f"{TITLES[tool]}, {operation}" + (f" ({begin // MAX_SERIES + 1} of {-(-len(series) // MAX_SERIES)})" if len(series) > MAX_SERIES else "")
            found.append(Chart(title, "time, µs" if is_latency else "rate, GB/s", series[begin:begin + MAX_SERIES], limit, notes))
    return found


def wrong_data(document):
    """How many bytes of how many sizes were not what was sent."""
    wrong = [(result.number("bytes"), result.number("wrong_count", 0)) for result in document.root.nodes("results")]
    return [(size, count) for size, count in wrong if count > 0]
