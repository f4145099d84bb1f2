# SPDX-License-Identifier: Apache-2.0
"""Elements of the page. What is no Markup is text and is escaped."""

import html

EMPTY = ("br", "col", "meta", "link")


class Markup(str):
    """Text that is HTML already."""


def escaped(part):
    if part is None:
        return ""
    if isinstance(part, Markup):
        return part
    if isinstance(part, (list, tuple)):
        return "".join(escaped(each) for each in part)
    return html.escape(str(part))


def element(name, /, *parts, **attributes):
    """Attributes are written as `class_`, `aria_label`; those that are None are left out."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"' for key, value in attributes.items() if value is not None)
    return Markup(f"<{name}{written}>" if name in EMPTY else f"<{name}{written}>{escaped(parts)}</{name}>")


# What a verdict is shown with: a sign, so that none is told by its colour alone.
SIGNS = {"FAIL": ("bad", "✗"), "WARN": ("warn", "!"), "UNKNOWN": ("unknown", "?"), "PASS": ("good", "✓"), "SKIP": ("quiet", "–"),
         "unfit": ("bad", "✗"), "unknown": ("unknown", "?"), "fit": ("good", "✓"), "worse": ("bad", "▼"), "better": ("good", "▲"),
         "same": ("quiet", "="), "not judged": ("unknown", "?"), "stand-in": ("warn", "!"), "changed": ("warn", "≠"), "note": ("quiet", "i")}


def badge(word, count=None):
    kind, sign = SIGNS[word]
    return element("span", element("span", sign, aria_hidden="true"), " ", f"{count} " if count is not None else "", word, class_=f"badge {kind}")


def table(headings, rows, numbers=(), caption=None):
    """`numbers`: the columns that are aligned to the right. Wide tables scroll inside themselves."""
    def cells(name, row):
        return [element(name, cell, class_="number" if index in numbers else None, scope="col" if name == "th" else None) for index, cell in enumerate(row)]

    parts = [element("thead", element("tr", cells("th", headings))),
             element("tbody", [element("tr", cells("td", row)) for row in rows])]
    dense = "dense" if len(headings) > 10 else None  # on paper there is nothing to scroll
    shown = element("p", caption, class_="fine", aria_hidden="true") if caption else ""
    return Markup(shown + element("div", element("table", parts, class_=dense), class_="scroll", tabindex="0", role="region", aria_label=caption or " ".join(str(each) for each in headings)))


def folded(summary, *parts):
    return element("details", element("summary", summary), parts)


def bytes_text(count):
    """"64 KiB", "1 B", as the program writes it, and never in two lines."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power and count % (1 << power) == 0:
            return f"{count >> power}\u00a0{unit}"
    return f"{count}\u00a0B"


def number_text(value):
    """Four significant digits, and never an exponent."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    digits = 3
    magnitude = abs(value)
    while magnitude >= 10 and digits > 0:
        magnitude /= 10
        digits -= 1
    while magnitude < 1 and digits < 6:
        magnitude *= 10
        digits += 1
    return f"{value:,.{digits}f}"


def percent_text(share):
    return f"{share * 100:+.1f} %".replace("-", "−")


def counted(count, what):
    return f"{count:,} {what}{'' if count == 1 else 's'}"
