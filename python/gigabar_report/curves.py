# SPDX-License-Identifier: Apache-2.0
"""Curves by size, drawn by matplotlib as SVG: twice, for wide and for narrow pages. Colours are names of the page's style sheet, so that one
drawing is right in light and dark; each series has a marker and each statistic a dash of its own."""

import dataclasses
import html
import io
import re

from .documents import ReportError
from .html import Markup, bytes_text, element, folded, number_text, table

MAX_SERIES = 6
MARKERS = ("o", "s", "^", "D", "v", "P")
# Drawn in these, and replaced: matplotlib takes no names of style sheets.
INK, GRID, LIMIT, PAPER = "#010101", "#020202", "#030303", "#040404"
COLOURS = tuple(f"#0505{index:02x}" for index in range(1, MAX_SERIES + 1))
NAMES = {INK: "var(--ink)", GRID: "var(--grid)", LIMIT: "var(--limit)", PAPER: "var(--paper)",
         **{colour: f"var(--series-{index})" for index, colour in enumerate(COLOURS, 1)}}
DASHES = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 2))}
SWATCH_DASHES = {"solid": None, "dashed": "6 3", "dotted": "2 3"}


class NoLibrary(ReportError):
    """Curves cannot be drawn."""


@dataclasses.dataclass
class Line:
    """One statistic of a series."""
    name: str  # p50
    dash: str
    points: list  # of size and value


@dataclasses.dataclass
class Series:
    name: str
    note: str
    lines: list


@dataclasses.dataclass
class Limit:
    name: str
    value: float


@dataclasses.dataclass
class Chart:
    title: str
    quantity: str  # "time, µs": of the vertical axis
    series: list
    limit: Limit = None
    notes: list = dataclasses.field(default_factory=list)


def _library():
    try:
        import matplotlib
        from matplotlib import figure, ticker
    except ImportError as error:
        raise NoLibrary(f"curves are drawn by matplotlib, which this Python cannot import ({error}); install it: apt install python3-matplotlib, "
                          "or pip install matplotlib") from None
    return matplotlib, figure, ticker


def _settings(font_size):
    return {"svg.fonttype": "none", "svg.hashsalt": "gigabar", "font.family": "DejaVu Sans", "font.size": font_size, "text.color": INK,
            "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": GRID, "axes.linewidth": 0.8}


def _axis_ticks(axes, ticker, smallest, largest, is_narrow):
    axes.xaxis.set_major_locator(ticker.LogLocator(base=2, numticks=5 if is_narrow else 11))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda count, _: bytes_text(round(count)) if count >= 1 else ""))
    decades = largest / smallest if smallest > 0 else 10
    steps = (1,) if decades > 300 else (1, 2, 5)
    axes.yaxis.set_major_locator(ticker.LogLocator(base=10, subs=steps, numticks=20))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _draw(chart, is_narrow):
    matplotlib, figure_module, ticker = _library()
    with matplotlib.rc_context(_settings(9.5 if is_narrow else 10)):
        figure = figure_module.Figure(figsize=(3.8, 3.4) if is_narrow else (8.6, 4.2), layout="constrained")
        axes = figure.subplots()
        values = []
        for series, colour, marker in zip(chart.series, COLOURS, MARKERS):
            for line in series.lines:
                points = [(size, value) for size, value in line.points if size > 0 and value > 0]
                if not points:
                    continue
                values += [value for _, value in points]
                is_main = line is series.lines[0]
                axes.plot(*zip(*points), color=colour, linestyle=DASHES[line.dash], linewidth=1.8 if is_main else 1.2, marker=marker, markersize=4.5,
                          markerfacecolor=colour if is_main else PAPER, markeredgecolor=colour)
        if not values:
            return None
        if chart.limit:
            values.append(chart.limit.value)
            axes.axhline(chart.limit.value, color=LIMIT, linestyle=DASHES["dotted"], linewidth=2)
        axes.set(xscale="log", yscale="log", xlabel="size (logarithmic)", ylabel=f"{chart.quantity} (logarithmic)", ylim=(min(values) / 1.3, max(values) * 1.3))
        _axis_ticks(axes, ticker, min(values), max(values), is_narrow)
        axes.grid(color=GRID, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _inline(svg, prefix, label):
    """As an element of a page: without the head of a file, and with ids that no other drawing has."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{prefix}", svg)
    svg = re.sub("|".join(NAMES), lambda found: NAMES[found.group()], svg)
    svg = re.sub(r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', lambda found: f'<svg viewBox="{found.group(1)}" role="img" aria-label="{html.escape(label)}">', svg, count=1)
    return Markup(re.sub(r"\n\s*", "\n", svg))


def _swatch(colour, marker, line):
    shapes = {"o": '<circle cx="14" cy="7" r="4"/>', "s": '<rect x="10" y="3" width="8" height="8"/>', "^": '<path d="M14 2l5 9h-10z"/>',
              "D": '<path d="M14 2l5 5-5 5-5-5z"/>', "v": '<path d="M14 12l5-9h-10z"/>', "P": '<path d="M12 3h4v2h3v4h-3v2h-4v-2h-3v-4h3z"/>'}
    dash = f' stroke-dasharray="{SWATCH_DASHES[line.dash]}"' if SWATCH_DASHES[line.dash] else ""
    fill = colour if line.dash == "solid" else "var(--paper)"
    shape = shapes[marker].replace("/>", f' fill="{fill}" stroke="{colour}" stroke-width="1.5"/>') if marker else ""
    return Markup(f'<svg class="swatch" viewBox="0 0 28 14" aria-hidden="true"><path d="M0 7h28" stroke="{colour}" stroke-width="2"{dash}/>{shape}</svg>')


def _legend(chart):
    entries = []
    for index, (series, marker) in enumerate(zip(chart.series, MARKERS), 1):
        keys = [element("span", _swatch(f"var(--series-{index})", marker, line), " ", line.name, class_="key") for line in series.lines]
        entries.append(element("li", element("strong", series.name), " ", keys, element("span", series.note, class_="fine") if series.note else None))
    if chart.limit:
        swatch = _swatch("var(--limit)", None, Line("", "dotted", []))
        entries.append(element("li", element("span", swatch, " ", f"limit of the link: {number_text(chart.limit.value)} GB/s, {chart.limit.name}", class_="key")))
    return element("ul", entries, class_="legend")


def _values(chart):
    """The same figures as a table."""
    columns = [(series, line) for series in chart.series for line in series.lines]
    by_size = {}
    for index, (_, line) in enumerate(columns):
        for size, value in line.points:
            by_size.setdefault(size, {})[index] = value
    rows = [[bytes_text(int(size)), *(number_text(by_size[size].get(index)) for index in range(len(columns)))] for size in sorted(by_size)]
    return table(["size", *(f"{series.name}, {line.name}" for series, line in columns)], rows, numbers=range(1, len(columns) + 1),
                 caption=f"{chart.title}: {chart.quantity}")


def drawn(chart, name):
    """`name`: of this drawing in the page."""
    label = f"{chart.title}. {chart.quantity} by size, both axes logarithmic: {'; '.join(series.name for series in chart.series)}. The figures are in the table below."
    drawings = []
    for kind in ("wide", "narrow"):
        svg = _draw(chart, kind == "narrow")
        if svg is not None:
            drawings.append(element("div", _inline(svg, f"{name}-{kind}-", label), class_=f"drawing {kind}"))
    notes = list(chart.notes)
    if any(size == 0 for series in chart.series for line in series.lines for size, _ in line.points):
        notes.append("A logarithmic axis has no place for 0 B, which only the table has.")
    return element("figure", element("figcaption", chart.title), drawings, _legend(chart), [element("p", note, class_="fine") for note in notes],
                   folded("These figures as a table", _values(chart)))
