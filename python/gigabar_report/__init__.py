# SPDX-License-Identifier: Apache-2.0
"""One HTML page of JSON documents that `gigabar` wrote, with everything inside and no script. Curves need matplotlib.

    from gigabar_report import write_page
    write_page("page.html", ["today.json"], before=["last.json"])
"""

from .documents import ReportError, parse, read
from .page import page

__all__ = ["ReportError", "page", "parse", "read", "report", "write_page"]


def report(paths, before=()):
    """The page of these files as text. `before`: files that they are held against. Raises ReportError, whose one line names the file, the
    cause and the remedy."""
    return page(read(list(paths)), read(list(before)))


def write_page(output, paths, before=()):
    """Writes the page of report() to the file `output`, which is left as it was when there is an error."""
    text = report(paths, before)
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)
