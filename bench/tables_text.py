# SPDX-License-Identifier: Apache-2.0
"""What the makers of tables share: where the results are, and how figures are written."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


class BadResult(Exception):
    """A file in bench/results that no table can be made of."""


def bytes_text(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def us(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def command_of(document):
    # Where the figures were written is of no interest.
    program, *rest = document["command"]
    words = [word if re.fullmatch(r"[\w./=,:-]+", word) else f"'{word}'" for word in rest]
    return re.sub(r" --json[ =]\S+", "", " ".join([program if program.startswith("bench/") else "gigabar", *words]))


def caption(document):
    device, machine, mapping = document["device"], document["machine"], document["mapping"]
    if document["tool"] == "hosts":  # each row has its own user and commands
        return f"{device['name']}, {device['driver']}; {machine['cpu']}; {document['date'][:10]}"
    path = f"; mapping `{mapping['backend']}`, {mapping['type'].replace('_', '-')}" if mapping else ""
    of_device = f"{device['name']}, {device['driver']}; " if device else ""  # host memory alone needs none
    return (
        f"{of_device}{machine['cpu']}{path}; user `{machine['user']}`; {document['date'][:10]}; "
        f"`{command_of(document)}`"
    )
