# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON documents of `gigabar`. A file may be anything: whatever is not as expected ends in a ReportError that names the file,
the place in it, the cause and the remedy."""

import json
import math
import pathlib
import re

MAX_BYTES = 64 << 20
MAX_FILES = 64
MAX_ENTRIES = 20000  # of one list
SCHEMAS = (1, 2)
RANKS = ("latency", "bw", "bibw", "multi-lat", "mbw-mr")
TOOLS = ("survey", "streams", "copylat", *RANKS, "matrix", "compare", "doctor", "topology", "preflight")

# Characters that no page shows, or that change how what stands beside them is shown.
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
MAX_TEXT = 4000


class ReportError(Exception):
    """One line: the file, what is wrong with it, and what to do."""


def plain(text):
    """As text of a page: nothing unseen, and not endless."""
    text = UNSEEN.sub(lambda found: " " if found.group() in "\n\t" else "\ufffd", text)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " …"


REQUIRED = object()  # a member without which the document is damaged


class Node:
    """An object of a document. Its members are read by the kind that they must have."""

    def __init__(self, members, place, path):
        self._members, self._place, self._path = members, place, path

    def has(self, key):
        return self._members.get(key) is not None

    def _fail(self, key, wanted):
        place = f"{self._place}.{key}" if self._place else key
        found = f"is not {wanted}" if wanted else "is missing"
        raise ReportError(f"{self._path}: {place} {found}; the file was changed or is damaged, write it again with 'gigabar ... --json FILE'")

    def _get(self, key, kind, wanted, otherwise):
        value = self._members.get(key)
        if value is None and otherwise is not REQUIRED:
            return otherwise
        if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool:
            self._fail(key, wanted if value is not None else None)
        return value

    # `otherwise`: what is returned where the member is missing or null; without it that is an error.
    def text(self, key, otherwise=REQUIRED):
        value = self._get(key, str, "text", otherwise)
        return plain(value) if isinstance(value, str) else value

    def number(self, key, otherwise=REQUIRED):
        value = self._get(key, (int, float), "a number", otherwise)
        if isinstance(value, (int, float)) and not (abs(value) < 1e18 and math.isfinite(value)):
            self._fail(key, "a number of a possible size")
        return value

    def flag(self, key, otherwise=False):
        return self._get(key, bool, "true or false", otherwise)

    def node(self, key):
        """Nothing where it is missing or null."""
        value = self._get(key, dict, "an object", None)
        return None if value is None else self._child(value, key)

    def _child(self, value, key):
        return Node(value, f"{self._place}.{key}" if self._place else key, self._path)

    def _list(self, key, kind, wanted):
        values = self._get(key, list, "a list", [])
        if len(values) > MAX_ENTRIES:
            self._fail(key, f"a list of at most {MAX_ENTRIES} entries")
        for index, value in enumerate(values):
            if not isinstance(value, kind) or isinstance(value, bool):
                self._fail(f"{key}[{index}]", wanted)
        return values

    def nodes(self, key):
        return [self._child(value, f"{key}[{index}]") for index, value in enumerate(self._list(key, dict, "an object"))]

    def texts(self, key):
        return [plain(value) for value in self._list(key, str, "text")]

    def numbers(self, key):
        """A number that is not known is None."""
        values = self._list(key, (int, float, type(None)), "a number")
        for index, value in enumerate(values):
            if value is not None and not (abs(value) < 1e18 and math.isfinite(value)):
                self._fail(f"{key}[{index}]", "a number of a possible size")
        return values

    def rows(self, key):
        """A matrix: lists of numbers."""
        return [Node({"row": row}, f"{self._place}.{key}[{index}]", self._path).numbers("row")
                for index, row in enumerate(self._list(key, list, "a list"))]


class Document:
    """One file: what all documents have, and `root` for the rest."""

    def __init__(self, path, root):
        self.path, self.root = path, root
        self.name = plain(pathlib.PurePath(path).stem)  # in legends
        self.tool = root.text("tool")
        self.date = root.text("date", "")
        self.command = root.texts("command")
        self.notes = root.texts("notes")
        machine = root.node("machine")
        self.host = machine.text("host", "") if machine else ""
        self.machine = machine
        device = root.node("device")
        self.devices = ([device] if device else []) + root.nodes("devices") + [rank.node("device") for rank in root.nodes("ranks") if rank.node("device")]
        self.is_stand_in = root.flag("is_stand_in") or any(device.flag("is_stand_in") for device in self.devices) or any(
            result.flag("is_stand_in") for result in root.nodes("results"))

    def device_text(self):
        names = [device.text("name", "?") for device in self.devices]
        return ", ".join(dict.fromkeys(names))

    def topology(self):
        """Of a survey, or of `gigabar topology`; nothing elsewhere."""
        if self.tool == "survey":
            return self.root.node("topology")
        if self.tool == "topology":
            return next((result for result in self.root.nodes("results") if result.text("what", "topology") == "topology"), None)
        return None

    def findings(self):
        key = {"survey": "findings", "doctor": "results"}.get(self.tool)
        return [each for each in self.root.nodes(key) if each.has("verdict")] if key else []


def _not_a_number(word):
    raise ValueError(f"{word} is no number of JSON")


def _text_of(path):
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read: {error.strerror}; name a file that 'gigabar COMMAND --json FILE' wrote") from None
    if len(data) > MAX_BYTES:
        raise ReportError(f"{path}: is larger than {MAX_BYTES >> 20} MiB, which no document of gigabar is; name a file that 'gigabar COMMAND --json FILE' wrote")
    if not data.strip():
        raise ReportError(f"{path}: is empty; write it again with 'gigabar COMMAND --json {path}'")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ReportError(f"{path}: is not UTF-8 text, so it is not JSON; name a file that 'gigabar COMMAND --json FILE' wrote") from None


def parse(path, text):
    """The document in `text`; `path` is what messages call it."""
    path = plain(path)
    try:
        members = json.loads(text, parse_constant=_not_a_number)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or "Unterminated" in error.msg:
            raise ReportError(f"{path}: is cut off in line {error.lineno}; write it again, or copy all of it") from None
        raise ReportError(f"{path}: is not JSON (line {error.lineno}: {error.msg}); name a file that 'gigabar COMMAND --json FILE' wrote") from None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ReportError(f"{path}: is not a document of gigabar: {plain(why)[:200]}; name a file that 'gigabar COMMAND --json FILE' wrote") from None
    if not isinstance(members, dict) or not isinstance(members.get("tool"), str):
        raise ReportError(f"{path}: is not a document of gigabar: it does not say which command wrote it; name a file that 'gigabar COMMAND --json FILE' wrote")
    tool = plain(members["tool"])[:60]
    if tool not in TOOLS:
        raise ReportError(f"{path}: is a document of '{tool}', which a page does not show; give documents of {', '.join(TOOLS)}")
    schema = members.get("schema")
    if schema not in SCHEMAS or isinstance(schema, bool):
        raise ReportError(f"{path}: has schema {plain(str(schema))[:40]}, and this report reads {' and '.join(map(str, SCHEMAS))}; "
                          "use the report of the gigabar that wrote it, or write it again")
    try:
        return Document(path, Node(members, "", path))
    except RecursionError:
        raise ReportError(f"{path}: is nested too deeply for a document of gigabar; write it again with 'gigabar {tool} --json FILE'") from None


def read(paths):
    """The documents of these files, each with a name of its own."""
    if len(paths) > MAX_FILES:
        raise ReportError(f"{len(paths)} files are given; give {MAX_FILES} at most")
    documents = [parse(str(path), _text_of(path)) for path in paths]
    names = [document.name for document in documents]
    for document in documents:
        if names.count(document.name) > 1:
            document.name = plain(document.path)
    return documents
