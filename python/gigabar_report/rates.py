# SPDX-License-Identifier: Apache-2.0
"""Rates as bars beside the limit of their link: of surveys, transfer streams and preflights."""

from .curves import Chart, Limit, Line, Series
from .html import badge, bytes_text, element, folded, number_text, table


def bar(name, value, limit, link, detail=None, mark=None):
    """A rate. The frame ends at the link's limit; without a known limit there is no frame to compare with."""
    share = value / limit if limit else None
    said = f"{number_text(value)} GB/s" + (f" of {number_text(limit)}, {share * 100:.0f} %" if limit else "")
    frame = element("div", element("div", class_="fill", style=f"width:{min(share, 1) * 100:.1f}%"), class_="frame", role="img",
                    aria_label=f"{name}: {said}") if limit else element("div", "the limit of the link is not known", class_="fine")
    return element("div", element("div", element("span", name, class_="name"), " ", element("span", said, class_="number"), [" ", mark] if mark else None, class_="said"),
                   frame, element("div", ", ".join(part for part in (link, detail) if part and part != "unknown"), class_="fine"), class_="bar")


def bars(parts):
    legend = element("p", "The frame of a bar ends at the theoretical rate of its link.", class_="fine") if any('class="frame"' in part for part in parts) else None
    return [element("div", parts, class_="bars"), legend] if parts else None


def survey(document):
    """Rates of each path, then times of small copies."""
    rates, times, failures = [], [], []
    for result in document.root.nodes("results"):
        key = result.text("key")
        if result.has("failure"):
            failures.append([key, result.text("failure")])
        elif result.text("unit") == "us":
            times.append([key, number_text(result.number("value")), number_text(result.number("min")), number_text(result.number("max")), result.text("path", "")])
        else:
            ratio, value = result.number("ratio", 0), result.number("value")
            rates.append(bar(key, value, value / ratio if ratio else None, result.text("link", ""),
                             f"{number_text(result.number('min'))} to {number_text(result.number('max'))} GB/s; {result.text('path', '')}"))
    passes = document.root.node("passes")
    return [bars(rates),
            table(["copy", "µs", "least", "most", "path"], times, numbers=(1, 2, 3), caption="Times of small copies, µs (median, and the range of the samples)") if times else None,
            table(["not measured", "why"], failures, caption="Paths that could not be measured") if failures else None,
            element("p", f"Medians of {passes.number('count', 1):.0f} passes over {passes.number('seconds', 0):.0f} s.", class_="fine") if passes else None]


def _transfer(transfer, is_stand_in):
    text = transfer.text("text")
    error = transfer.node("error")
    if error:
        return element("div", element("div", element("span", text, class_="name"), " ", badge("FAIL"), class_="said"),
                       element("div", error.text("message"), class_="fine"), class_="bar")
    mark = element("span", badge("PASS" if transfer.flag("is_verified") else "UNKNOWN"), " data verified" if transfer.flag("is_verified") else " data not verified")
    latency = transfer.node("latency")
    rate = transfer.node("window_gb_per_s") or transfer.node("life_gb_per_s")
    if transfer.flag("is_latency") and latency:
        said = f"p50 {number_text(latency.number('p50_us'))} µs, p99 {number_text(latency.number('p99_us'))} µs"
        return element("div", element("div", element("span", text, class_="name"), " ", element("span", said, class_="number"), " ", mark, class_="said"),
                       element("div", transfer.text("path", ""), class_="fine"), class_="bar")
    if rate is None:
        return None
    link = transfer.node("link")
    limit = link.number("gb_per_s", None) if link and not is_stand_in else None
    plain_copy = transfer.node("plain_cudaMemcpyAsync_gb_per_s")
    detail = f"{number_text(rate.number('min'))} to {number_text(rate.number('max'))} GB/s; {transfer.text('path', '')}"
    if plain_copy:
        detail += f"; cudaMemcpyAsync alone {number_text(plain_copy.number('median'))} GB/s"
    return bar(text, rate.number("median"), limit, link.text("name", "") if link else "", detail, mark)


def _run(result, is_stand_in):
    warnings = result.texts("warnings")
    error = result.node("error")
    parts = [element("p", badge("FAIL"), " ", error.text("message")) if error else None,
             [element("p", badge("WARN"), " ", warning) for warning in warnings],
             bars([each for each in (_transfer(transfer, is_stand_in) for transfer in result.nodes("transfers")) if each is not None])]
    for total in result.nodes("totals"):
        rate = total.node("aggregate_gb_per_s")
        if rate and len(result.nodes("transfers")) > 1:
            overlap = total.node("overlap_percent")
            parts.append(element("p", element("strong", f"{total.text('group', '') or 'all'} together: {number_text(rate.number('median'))} GB/s"),
                                 f", {overlap.number('median'):.0f} % of the shortest transfer's time beside all others" if overlap else ""))
    return parts


def _matrix(matrix, unit):
    rows = matrix.rows("rows")
    width = max((len(row) for row in rows), default=0)
    if width == 0:
        return None
    return table(["", *(str(column) for column in range(width))], [[str(index), *(number_text(cell) for cell in row)] for index, row in enumerate(rows)],
                 numbers=range(1, width + 1), caption=f"{matrix.text('name', '')} {unit}, row to column".strip())


def _preset(result):
    heading = element("h4", result.text("name"))
    if result.text("waived", ""):
        return [heading, element("p", badge("SKIP"), " ", result.text("waived"))]
    return [heading, element("p", result.text("description"), class_="fine"), [_matrix(matrix, result.text("unit")) for matrix in result.nodes("matrices")]]


def streams(document):
    parts, presets, swept = [], [], []
    for result in document.root.nodes("results"):
        if result.text("measure") == "preset":
            presets.append(element("div", _preset(result)))
        elif result.text("measure") == "description":
            parts.append(element("p", element("strong", result.text("name")), ": ", result.text("description")))
        else:
            size = result.number("swept_bytes", None)
            heading = bytes_text(int(size)) if size is not None else result.text("title", "")
            run = _run(result, document.is_stand_in)
            (parts if size is None else swept).append([element("h4", heading) if heading else None, run])
    return [parts, folded(f"Each of {len(swept)} sizes", swept) if swept else None, element("div", presets, class_="presets") if presets else None]


def sweep(document):
    """The rate of each transfer by size, where sizes were swept."""
    lines, limits = {}, set()
    for result in document.root.nodes("results"):
        size = result.number("swept_bytes", None) if result.text("measure") != "preset" else None
        for index, transfer in enumerate(result.nodes("transfers")) if size is not None else ():
            rate = transfer.node("window_gb_per_s") or transfer.node("life_gb_per_s")
            ends = [transfer.node(end) for end in ("source", "destination")]
            if rate is None or not all(ends):
                continue
            names = [f"gpu{end.number('device'):.0f}" if end.text("kind") == "device" else "host" for end in ends]
            lines.setdefault(f"{index + 1}: {' to '.join(names)}, {transfer.text('executor')}", []).append((size, rate.number("median")))
            link = transfer.node("link")
            if link and link.has("gb_per_s") and not document.is_stand_in:
                limits.add((link.number("gb_per_s"), link.text("name")))
    if not lines:
        return None
    series = [Series(name, "", [Line("median", "solid", points)]) for name, points in list(lines.items())[:6]]
    notes = [f"{len(lines) - 6} more transfers are in the tables."] if len(lines) > 6 else []
    return Chart(f"Rate by size, {document.name}", "rate, GB/s", series, Limit(*reversed(max(limits))) if limits else None, notes)


def preflight(document):
    """Its paths as bars, and what else it looked at."""
    paths, others = [], []
    for result in document.root.nodes("results"):
        if result.text("kind") == "path" and result.has("gb_per_s"):
            detail = "; ".join(part for part in (result.text("how", ""), result.text("load", "")) if part)
            paths.append(bar(result.text("name"), result.number("gb_per_s"), result.number("link_gb_per_s", None), result.text("link", ""), detail, badge(result.text("state"))))
        else:
            others.append([badge(result.text("state") if result.text("state") in ("fit", "unfit") else "unknown"), result.text("name"), result.text("subject", ""), result.text("statement", "")])
    return [bars(paths), folded(f"All {len(others)} checks and requirements", table(["state", "name", "of", "statement"], others)) if others else None]
