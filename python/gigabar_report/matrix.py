# SPDX-License-Identifier: Apache-2.0
"""What `gigabar matrix` measured: the slow parts, what is usual, and a table of all pairs of ranks."""

from .html import badge, bytes_text, counted, element, folded, number_text, table

MAX_RANKS = 32  # of a table that can be read
QUANTITIES = {"bandwidth": ("gb_per_s", "GB/s"), "latency": ("us", "µs")}


def _kind(one, other, has_switches):
    """As the program names the paths between two ranks, by their places."""
    if one.number("host", None) == other.number("host", None):
        return "paths within a host"
    if one.number("switch", None) != other.number("switch", None):
        return "paths between switches"
    return "paths behind one switch" if has_switches else "paths between hosts"


def _slow_cells(document, result, rows):
    """Those with less of the usual than the program's limit for their kind."""
    key, _ = QUANTITIES[result.text("measure")]
    kinds = {kind.text("kind"): (kind.number(f"usual_{key}"), kind.number("slow_below_share")) for kind in result.nodes("kinds")}
    places, has_switches = document.root.nodes("places"), bool(document.root.texts("switches"))
    found = set()
    for sender, row in enumerate(rows):
        for receiver, value in enumerate(row):
            if sender >= len(places) or receiver >= len(places) or not value or value <= 0:
                continue
            usual, limit = kinds.get(_kind(places[sender], places[receiver], has_switches), (0, 0))
            if usual > 0 and (usual / value if key == "us" else value / usual) < limit:
                found.add((sender, receiver))
    return found


def _pairs(document, result):
    measure = result.text("measure")
    key, unit = QUANTITIES[measure]
    rows = result.rows(key)
    width = max((len(row) for row in rows), default=0)
    if width > MAX_RANKS:
        return element("p", f"A table of {width} ranks is not shown; 'gigabar matrix --svg' draws it, and --csv has a line for each pair.", class_="fine")
    slow = _slow_cells(document, result, rows)
    cells = [[str(sender), *(f"{number_text(value)}{' !' if (sender, receiver) in slow else ''}" for receiver, value in enumerate(row))] for sender, row in enumerate(rows)]
    shown = table(["from", *(str(receiver) for receiver in range(width))], cells, numbers=range(1, width + 1),
                  caption=f"{measure}, {unit}: rows send, columns receive" + ("; !: slow" if slow else "")) if width else None
    return folded(f"All pairs of {width} ranks", shown) if width > 8 else shown


def _result(document, result):
    measure = result.text("measure")
    if measure not in QUANTITIES:
        return None
    key, unit = QUANTITIES[measure]
    kinds = [[kind.text("kind"), f"{kind.number('paths'):.0f}", f"{kind.number('slow_paths'):.0f}", number_text(kind.number(f"usual_{key}"))] for kind in result.nodes("kinds")]
    parts = [element("h4", f"{measure.capitalize()}, {bytes_text(int(result.number('bytes')))}"),
             table(["", "paths", "slow", f"usual, {unit}"], kinds, numbers=(1, 2, 3)) if kinds else None]
    for slow in result.nodes("slow"):
        worst = slow.node("worst")
        said = f": {slow.number('share') * 100:.0f} % of the usual on {counted(int(slow.number('paths')), 'path')}"
        if worst:
            said += f"; the worst, from rank {worst.number('from'):.0f} to rank {worst.number('to'):.0f}: {number_text(worst.number(key))} {unit}, {worst.text('path')}"
        parts.append(element("p", badge("WARN"), " ", element("strong", slow.text("text")), said))
    return [*parts, _pairs(document, result)]


def shown(document):
    """All that was measured between these ranks."""
    return [_result(document, result) for result in document.root.nodes("results")]


def verdict(document):
    """A word with a sign, and one line."""
    results = document.root.nodes("results")
    kinds = [kind for result in results for kind in result.nodes("kinds")]
    slow, paths = (int(sum(kind.number(key) for kind in kinds)) for key in ("slow_paths", "paths"))
    wrong = document.root.number("wrong_count", 0)
    text = f"{document.name}: 'matrix' of {len(document.root.nodes('ranks'))} ranks; {slow:,} of {paths:,} paths slow; "
    text += "wrong data" if wrong else "all data right" if document.root.flag("is_checked") else "data was not compared"
    return "FAIL" if wrong else "WARN" if slow or document.root.flag("is_slow") else "PASS", text
