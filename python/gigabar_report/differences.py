# SPDX-License-Identifier: Apache-2.0
"""What differs between documents of before and of now, and whether by more than the noise."""

import dataclasses
import statistics

from .documents import RANKS, ReportError
from .html import bytes_text

NOISE_FLOOR = 0.10  # as `gigabar compare` has it
OUTPUTS = ("--json", "--csv")


@dataclasses.dataclass
class Figure:
    """A measured value of one side, over all of its documents."""
    group: str  # what it is shown under
    key: str
    unit: str
    value: float
    low: float
    high: float
    is_judged: bool = True  # its range tells something of the noise
    run_count: int = 1


@dataclasses.dataclass
class Difference:
    group: str
    key: str
    unit: str
    first: float
    second: float
    relative: float
    noise: float
    change: str  # better, worse, same, not judged


@dataclasses.dataclass
class Change:
    """Of a fact or a verdict."""
    key: str
    first: str
    second: str


def settings_of(command):
    """The words of a command line that say what was measured: without the program's name and its outputs."""
    kept, is_output = [], False
    for word in command[1:]:
        if is_output or word in OUTPUTS or word.startswith(tuple(f"{output}=" for output in OUTPUTS)):
            is_output = not is_output and word in OUTPUTS
        else:
            kept.append(word)
    return " ".join(kept).replace("--kind", "--op")


def _survey_figures(document):
    for result in document.root.nodes("results"):
        if result.has("failure") or not result.has("value") or result.number("value") <= 0:
            continue
        yield Figure("survey", result.text("key"), result.text("unit"), result.number("value"), result.number("min"), result.number("max"),
                     result.number("passes", 1) >= 2)


def _streams_figures(document):
    group = f"streams {settings_of(document.command).removeprefix('streams ')}".strip()
    for result in document.root.nodes("results"):
        swept = result.number("swept_bytes", None)
        for index, transfer in enumerate(result.nodes("transfers")):
            rate = transfer.node("window_gb_per_s") or transfer.node("life_gb_per_s")
            if rate is None or rate.number("median") <= 0:
                continue
            key = f"{index + 1}: {transfer.text('text')}" + (f", {bytes_text(int(swept))}" if swept else "")
            yield Figure(group, key, "GB/s", rate.number("median"), rate.number("min"), rate.number("max"))


def _ranks_figures(document):
    settings = settings_of(document.command)
    for result in document.root.nodes("results"):
        size = f"{bytes_text(int(result.number('bytes')))}" + (f", {int(result.number('pairs', 1))} pairs" if result.number("pairs", 1) > 1 else "")
        time = result.number("p50_us", 0)
        if "lat" in document.tool and time > 0:
            # Of one run, half of its samples lie below the median: their spread stands for the noise.
            yield Figure(settings, size, "us", time, result.number("min_us"), time)
        elif result.number("mb_per_s", 0) > 0:
            rate = result.number("mb_per_s") / 1000
            yield Figure(settings, size, "GB/s", rate, rate, rate)


def _copies_figures(document):
    settings = settings_of(document.command)
    for result in document.root.nodes("results"):
        for method in result.nodes("methods"):
            time = method.number("p50_us")
            if time > 0:
                way = f"{result.text('measure')} {result.text('direction')}".replace("_", " ")
                yield Figure(settings, f"{way}, {method.text('name')}, {bytes_text(int(result.number('bytes')))}", "us", time, method.number("min_us"), time)


def _matrix_figures(document):
    """What is usual: single pairs are too many, and tell little of another day."""
    settings = settings_of(document.command)
    for result in document.root.nodes("results"):
        for kind in result.nodes("kinds"):
            for key, unit in (("usual_us", "us"), ("usual_gb_per_s", "GB/s")):
                usual = kind.number(key, 0)
                if usual > 0:
                    yield Figure(settings, f"{result.text('measure')}, {kind.text('kind')}, usual", unit, usual, usual, usual)


def figures_of(document):
    read = {"survey": _survey_figures, "streams": _streams_figures, "copylat": _copies_figures, "matrix": _matrix_figures, **dict.fromkeys(RANKS, _ranks_figures)}.get(document.tool)
    return list(read(document)) if read else []


def over_runs(figures):
    """Several runs of the same: their median, and the range between them, which is the noise."""
    by_key = {}
    for figure in figures:
        by_key.setdefault((figure.group, figure.key, figure.unit), []).append(figure)
    found = {}
    for key, runs in by_key.items():
        values = [run.value for run in runs]
        found[key] = runs[0] if len(runs) == 1 else dataclasses.replace(
            runs[0], value=statistics.median(values), low=min([*values, *(run.low for run in runs if run.is_judged and run.unit != "us")]),
            high=max([*values, *(run.high for run in runs if run.is_judged and run.unit != "us")]), is_judged=True, run_count=len(runs))
    return found


def judge(first, second, floor=NOISE_FLOOR):
    """As `gigabar compare`: the values differ by more than both ranges together, and by more than the floor."""
    relative = second.value / first.value - 1
    noise = max((first.high - first.low + second.high - second.low) / first.value, floor)
    if not (first.is_judged and second.is_judged):
        change = "not judged"
    elif abs(relative) <= noise:
        change = "same"
    else:
        change = "better" if (relative < 0) == (first.unit == "us") else "worse"
    return Difference(second.group, second.key, second.unit, first.value, second.value, relative, noise, change)


def _paired_groups(first, second):
    """Groups of now, each with that of before: the same settings, or the only one of the command that is left on both sides."""
    pairs = {group: group for group in second if group in first}
    for group in second:
        command = group.split(" ")[0]
        left = [each for each in first if each not in pairs.values() and each.split(" ")[0] == command]
        own = [each for each in second if each not in pairs and each.split(" ")[0] == command]
        if group not in pairs and len(left) == 1 and len(own) == 1:
            pairs[group] = left[0]
    return pairs


def differences(before, now):
    """Of all figures that both sides have."""
    first = over_runs([figure for document in before for figure in figures_of(document)])
    second = over_runs([figure for document in now for figure in figures_of(document)])
    groups = _paired_groups(dict.fromkeys(key[0] for key in first), dict.fromkeys(key[0] for key in second))
    found = []
    for (group, key, unit), figure in second.items():
        other = first.get((groups.get(group), key, unit))
        if other is not None:
            found.append(judge(other, figure))
    return found


def _facts(document):
    facts = {key: str(document.machine.number(key, "") if key == "cores" else document.machine.text(key, "")) for key in ("cpu", "kernel", "cores")} if document.machine else {}
    for index, device in enumerate(document.devices[:1]):
        facts.update({f"device {index}": device.text("name", ""), "driver": device.text("driver", "")})
    topology = document.topology()
    for route in topology.nodes("routes") if topology else []:
        ends = [route.node(end) for end in ("first", "second")]
        if all(ends):
            facts["route " + " to ".join(f"{end.text('kind')}{int(end.number('index'))}" for end in ends)] = f"{route.text('relation')} {route.text('bottleneck', '')}".strip()
    return {key: value for key, value in facts.items() if value}


def _changes(first, second):
    return [Change(key, first.get(key, "–"), second.get(key, "–")) for key in sorted({*first, *second}) if first.get(key, "–") != second.get(key, "–")]


def fact_changes(before, now):
    """Of pairs of documents of one command; from the last of before to the last of now."""
    found = []
    for tool in dict.fromkeys(document.tool for document in now):
        pair = [next((document for document in reversed(side) if document.tool == tool), None) for side in (before, now)]
        if all(pair):
            found += _changes(*(_facts(document) for document in pair))
    return list({change.key: change for change in found}.values())


def current_id(check):
    """The checks probe.* were trial.* in schema 1."""
    return "probe." + check.removeprefix("trial.") if check.startswith("trial.") else check


def verdict_changes(before, now):
    def verdicts(documents):
        return {f"{current_id(finding.text('check'))} {finding.text('subject', '')}".strip(): finding.text("verdict")
                for document in documents for finding in document.findings()}

    first, second = verdicts(before), verdicts(now)
    return _changes(first, second) if first and second else []


def require_common(before, now):
    """--before without anything to hold against it is a mistake."""
    tools = {document.tool for document in now}
    for document in before:
        if document.tool not in tools:
            raise ReportError(f"--before {document.path}: is of '{document.tool}', and no file of now is; give a file of 'gigabar {document.tool}' of now too")
