# SPDX-License-Identifier: Apache-2.0
"""The page: verdicts first, then differences, topology, rates, curves, and where all of it is from."""

import collections
import pathlib

from . import copies, curves, differences, findings, matrix, ranks, rates, topology
from .documents import RANKS, ReportError
from .html import Markup, badge, counted, element, folded, number_text, percent_text, table

STYLE = pathlib.Path(__file__).with_name("style.css")
CHANGES = ("worse", "better", "same", "not judged")

WORST_FIRST = ("FAIL", "unfit", "worse", "WARN", "changed", "UNKNOWN", "unknown", "not judged", "better", "PASS", "fit", "same")

Section = collections.namedtuple("Section", "name title parts")


class Contents:
    """All documents, and what is worked out of them once."""

    def __init__(self, documents, before):
        self.documents, self.before = documents, before
        differences.require_common(before, documents)
        self.differences = differences.differences(before, documents)
        self.unjudged_count = 0  # that documents of `compare` do not list
        self.unmatched = []  # figures without a value on both sides, and what that is
        self.verdict_changes = differences.verdict_changes(before, documents)
        self.fact_changes = differences.fact_changes(before, documents)
        for document in documents:
            if document.tool == "compare":
                self._add_compared(document)

    def _add_compared(self, document):
        changes = {"same": "same", "better": "better", "WORSE": "worse"}
        for result in document.root.nodes("results"):
            self.differences.append(differences.Difference(document.name, result.text("key"), result.text("unit"), *(result.number(key) for key in ("first", "second", "relative", "noise")),
                                                           changes.get(result.text("change"), "not judged")))
        self.unmatched += [({"fails": "worse", "works again": "better"}.get(each.text("why"), "changed"),
                            differences.Change(f"{each.text('key')}: {each.text('why')}", each.text("first"), each.text("second")))
                           for each in document.root.nodes("unmatched")]
        counts = document.root.node("counts")
        self.unjudged_count += int(counts.number("unjudged", 0)) if counts else 0
        for key, found in (("machine_changes", self.fact_changes), ("verdict_changes", self.verdict_changes)):
            found += [differences.Change(change.text("key"), change.text("first"), change.text("second")) for change in document.root.nodes(key)]

    def change_counts(self):
        counts = {change: sum(1 for each in self.differences if each.change == change) for change in CHANGES}
        counts["not judged"] += self.unjudged_count
        for change, _ in self.unmatched:
            if change in counts:
                counts[change] += 1
        return [(change, count) for change, count in counts.items() if count]

    def has_sides(self):
        """Whether there is something that is held against something else."""
        return bool(self.before) or any(document.tool == "compare" for document in self.documents)


# --- Verdicts -------------------------------------------------------------------------------------------------------------------------

def _streams_verdict(document):
    transfers = [transfer for result in document.root.nodes("results") for part in (result, *result.nodes("cells")) for transfer in part.nodes("transfers")]
    failed = [transfer for transfer in transfers if transfer.node("error")]
    stopped = any(result.flag("was_stopped") for result in document.root.nodes("results"))
    expected = document.root.node("parameters").number("expected_ratio", None) if document.root.node("parameters") else None
    slow = [transfer for transfer in transfers if expected and transfer.has("ratio") and transfer.number("ratio") < expected]
    text = f"{document.name}: {counted(len(transfers), 'transfer')}"
    text += f", {len(failed)} failed" if failed else ""
    text += f", {len(slow)} below {expected * 100:.0f} % of the link's rate" if slow else ""
    text += ", stopped before the end" if stopped else ""
    return [("FAIL" if failed or slow else "WARN" if stopped or not transfers else "PASS", None)], text, "rates"


def _ranks_verdict(document):
    wrong = ranks.wrong_data(document)
    results = document.root.nodes("results")
    checked = sum(1 for result in results if result.flag("is_checked"))
    text = f"{document.name}: '{document.tool}' of {counted(len(results), 'size')}; "
    text += f"wrong data at {counted(len(wrong), 'size')}" if wrong else "all data right" if results and checked == len(results) else "data was not compared" if not checked else f"data compared at {checked}, and right"
    return [("FAIL" if wrong else "PASS" if checked == len(results) and results else "note", None)], text, "ranks"


def _survey_verdict(document):
    results = document.root.nodes("results")
    failed = sum(1 for result in results if result.has("failure"))
    worst = document.root.node("worst")
    text = f"{document.name}: {counted(len(results) - failed, 'figure')} measured" + (f", {failed} could not be" if failed else "")
    if worst:
        text += f"; the worst is '{worst.text('key')}' with {worst.number('share_of_own_rate') * 100:.0f} % of its rate alone"
    return [("WARN" if failed else "PASS", None)], text, "rates"


def _verdict(document):
    if document.tool == "preflight":
        verdict = document.root.text("verdict")
        return [(verdict if verdict in ("fit", "unfit") else "unknown", None)], f"{document.name}: {document.root.text('line')}", "rates"
    if document.tool == "streams":
        return _streams_verdict(document)
    if document.tool in ("matrix", "copylat"):
        word, text = (matrix if document.tool == "matrix" else copies).verdict(document)
        return [(word, None)], text, "ranks" if document.tool == "matrix" else "copies"
    return _ranks_verdict(document) if document.tool in RANKS else None


def verdicts(contents, known):
    """`known`: the sections of the page, which cards lead to."""
    def card(words, text, target):
        """`words`: pairs of a word with a sign and a number of these, which may be nothing."""
        shown = element("a", text, href=f"#{target}") if target in known else text
        rank = min((WORST_FIRST.index(word) for word, _ in words if word in WORST_FIRST), default=len(WORST_FIRST))
        cards.append((rank, element("li", element("div", [[badge(*word), " "] for word in words], class_="marks"), element("div", shown))))

    cards = []
    for document in contents.documents:
        found = document.findings()
        if found:
            card(findings.counts(found), f"{document.name}: {counted(len(found), 'finding')} of the doctor", "findings")
        if document.tool == "survey":
            card(*_survey_verdict(document))
        elif _verdict(document):
            card(*_verdict(document))
    if contents.change_counts():
        card(contents.change_counts(), "figures against those of before", "differences")
    changes = len(contents.verdict_changes) + len(contents.fact_changes)
    if changes:
        card([("changed", changes)], "facts and verdicts that are not as before", "differences")
    stand_ins = [document.name for document in contents.documents if document.is_stand_in]
    notice = element("p", badge("stand-in"), " Host memory played the GPU: the figures say nothing about one. Documents: ", ", ".join(stand_ins), class_="notice") if stand_ins else None
    return [notice, element("ul", [card for _, card in sorted(cards, key=lambda card: card[0])], class_="cards")] if cards else [notice, element("p", "These documents hold facts and no verdicts.")]


# --- Differences ----------------------------------------------------------------------------------------------------------------------

def _difference_rows(found):
    return [[badge(each.change), each.key, f"{number_text(each.first)} {each.unit.replace('us', 'µs')}", f"{number_text(each.second)} {each.unit.replace('us', 'µs')}",
             percent_text(each.relative), f"{each.noise * 100:.0f} %"] for each in found]


def _difference_table(caption, found):
    return table(["", "figure", "before", "now", "change", "noise"], _difference_rows(found), numbers=(2, 3, 4, 5), caption=caption) if found else None


def changed(contents):
    if not contents.has_sides():
        return None
    parts = []
    for group in dict.fromkeys(each.group for each in contents.differences):
        own = [each for each in contents.differences if each.group == group]
        marked = sorted((each for each in own if each.change in ("worse", "better")), key=lambda each: (CHANGES.index(each.change), -round(abs(each.relative), 3)))
        rest = [each for each in own if each.change not in ("worse", "better")]
        parts.append([element("h3", group), _difference_table("Beyond the noise", marked) or element("p", "Nothing differs by more than the noise."),
                      folded(f"{len(rest)} within the noise, or not judged", _difference_table(None, rest)) if rest else None])
    if contents.unjudged_count:
        parts.append(element("p", badge("not judged", contents.unjudged_count), " Figures that 'gigabar compare' did not judge, since they were measured in one pass."))
    if not contents.change_counts():
        parts.append(element("p", "No figure is in the documents of both sides."))
    for title, changes in (("Without a value on both sides", contents.unmatched), ("Verdicts", [("changed", each) for each in contents.verdict_changes]),
                           ("Machine", [("changed", each) for each in contents.fact_changes])):
        if changes:
            rows = [[badge(word), change.key, change.first, change.second] for word, change in changes]
            parts.append([element("h3", title), table(["", "what", "before", "now"], rows)])
    parts.append(element(
        "p", "Noise: the ranges of both sides together, and at least 10 %. A survey of one pass is not judged. Several runs of one command are one figure, their median, "
        "with the range between them; of a single run of ranks the range is that from the least time to the median, which says little of another day.", class_="fine"))
    return parts


# --- The other sections ---------------------------------------------------------------------------------------------------------------

def _titled(document, parts):
    return [element("h3", document.name, element("span", f" {document.host}, {document.date}", class_="fine")), parts]


def attention(contents):
    """A survey and a doctor of the same moment mostly say the same, which is shown once."""
    parts, seen = [], {}
    for document in contents.documents:
        found = document.findings()
        same = seen.setdefault(findings.identity(document.host, found), document) if found else document
        shown = findings.shown(found) if same is document else element("p", f"The same findings as {same.name}.")
        if found or document.root.node("symptom"):
            parts.append(_titled(document, [findings.symptom(document), shown]))
    return parts or None


def machines(contents):
    """Each machine once: a survey and a topology of the same host mostly say the same."""
    parts, seen = [], []
    for document in contents.documents:
        found = document.topology()
        addresses = found and (document.host, [gpu.text("address", "") for gpu in found.nodes("gpus")], [nic.text("name") for nic in found.nodes("nics")])
        if found and addresses not in seen:
            seen.append(addresses)
            parts.append(_titled(document, topology.drawn(found)))
    return parts or None


def all_rates(contents):
    shown = {"survey": rates.survey, "streams": rates.streams, "preflight": rates.preflight}
    parts = []
    for index, document in enumerate(contents.documents):
        if document.tool not in shown:
            continue
        chart = rates.sweep(document) if document.tool == "streams" else None
        parts.append(_titled(document, [curves.drawn(chart, f"sweep-{index}") if chart else None, shown[document.tool](document)]))
    return parts or None


def between_ranks(contents):
    charts = ranks.charts([*contents.documents, *contents.before], contents.before)
    parts = [curves.drawn(chart, f"ranks-{index}") for index, chart in enumerate(charts)]
    return parts + [_titled(document, matrix.shown(document)) for document in contents.documents if document.tool == "matrix"] or None


def all_copies(contents):
    charts = copies.charts([*contents.documents, *contents.before], contents.before)
    tables = [copies.overheads(contents.documents), *(copies.kernels(document) for document in contents.documents if document.tool == "copylat")]
    return [curves.drawn(chart, f"copies-{index}") for index, chart in enumerate(charts)] + [each for each in tables if each] or None


def sources(contents):
    rows = [[document.name, f"{'before, ' if document in contents.before else ''}{document.tool}", document.host, document.date,
             document.device_text() or "–", element("code", " ".join(document.command))] for document in [*contents.documents, *contents.before]]
    notes = [element("li", f"{document.name}: {note}") for document in contents.documents for note in document.notes]
    return [table(["document", "of", "host", "date", "devices", "command"], rows), [element("h3", "Notes"), element("ul", notes)] if notes else None]


def _sections(contents):
    made = (("differences", "Differences", changed), ("findings", "Findings", attention), ("topology", "Topology", machines), ("copies", "Copies", all_copies),
            ("rates", "Rates", all_rates), ("ranks", "Between ranks", between_ranks), ("sources", "Documents", sources))
    sections = [Section(name, title, make(contents)) for name, title, make in made]
    sections = [section for section in sections if section.parts]
    return [Section("verdicts", "Verdicts", verdicts(contents, {section.name for section in sections})), *sections]


def page(documents, before=()):
    """The whole page as text."""
    try:
        contents = Contents(documents, list(before))
        sections = _sections(contents)
    except RecursionError:
        raise ReportError(f"{documents[0].path}: is nested too deeply for a document of gigabar; write it again") from None
    hosts = ", ".join(dict.fromkeys(document.host for document in documents if document.host))
    title = f"Gigabar report: {hosts}" if hosts else "Gigabar report"
    head = element("head", element("meta", charset="utf-8"), element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("meta", name="color-scheme", content="light dark"), element("title", title), element("style", Markup(STYLE.read_text(encoding="utf-8"))))
    navigation = element("nav", element("ul", [element("li", element("a", section.title, href=f"#{section.name}")) for section in sections]), aria_label="Sections")
    dates = sorted(document.date for document in documents if document.date)
    span = dates[0] if dates and dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}" if dates else ""
    header = element("header", element("h1", title), element("p", f"{counted(len(documents), 'document')}" + (f", {len(before)} of before" if before else "") + (f"; {span}" if span else "")))
    body = [element("section", element("h2", section.title), section.parts, id=section.name) for section in sections]
    main = element("main", body)
    return f"<!DOCTYPE html>\n{element('html', head, element('body', header, navigation, main), lang='en')}\n"
