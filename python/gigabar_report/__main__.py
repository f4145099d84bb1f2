# SPDX-License-Identifier: Apache-2.0
"""FILE... [--before FILE...]: prints the page of these documents. Runs as `python -m gigabar_report` and, for `gigabar report`, by the path of
its folder. Exit status: 0 done, 2 a file is no document, 3 there is no matplotlib and a curve to draw."""

import pathlib
import sys

if not __package__:
    # By its path: the modules beside it are found as a package only, and none of the folder that it was called in.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from gigabar_report import ReportError, report  # noqa: E402
from gigabar_report.curves import NoLibrary  # noqa: E402


def main(arguments):
    before = arguments.index("--before") if "--before" in arguments else len(arguments)
    try:
        text = report(arguments[:before], arguments[before + 1:])
    except NoLibrary as error:
        print(error, file=sys.stderr)
        return 3
    except ReportError as error:
        print(error, file=sys.stderr)
        return 2
    sys.stdout.buffer.write(text.encode("utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
