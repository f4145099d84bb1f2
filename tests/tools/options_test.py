#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the help of every subcommand of `gigabar`: its form, that a name means one thing, and the table in docs/command-line.md.
Options and exit status as command_line_test.py.
"""

import pathlib
import re
import sys

import command_line_test as shared
from command_line_test import expect, expect_refusal, run

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
# Commands that keep the command line of a tool of the field: their letters are that tool's.
KEPT = {"streams": "CUts", "copylat": "GDRCopy", "copybw": "GDRCopy", "apiperf": "GDRCopy", "pplat": "GDRCopy", "sanity": "GDRCopy",
        "latency": "OSU", "bw": "OSU", "bibw": "OSU", "multi-lat": "OSU", "mbw-mr": "OSU", "matrix": "OSU"}
# Names of earlier versions, which are taken and not shown: command, old name, a value that is refused, the name that the refusal has.
OLD = [("latency", "--kind", "get", "--op"), ("sanity", "--deadline", "0", "--timeout"), ("softhca", "--timeout-ms", "0", "--timeout-ms"),
       ("apiperf", "--warm-up", "x", "--warmup"), ("pplat", "--warm-up", "x", "--warmup"), ("tune", "-d", "rocm", "--accelerator"),
       ("matvec", "-m", "8:4", "--vector-size"), ("streams", "--iterations", "0", "--iter")]
LEFTOVERS = r"\{(true|false)\}|\b(FLOAT|UINT|INT|TEXT|BOOLEAN|REQUIRED|OPTION)\b| in \[|Excludes|Needs:|\(Env:|=\S+ \.\.\.|\[default\]"
TEXT_COLUMN = 30
NUMBERS = ("N", "BYTES", "SECONDS", "US", "SHARE", "RATIO", "GB_PER_S", "K", "ID", "0|1", "N,...", "[MIN:]MAX", "FROM:TO[:FACTOR]")


class Option:
    """A row of a help text."""

    def __init__(self, left):
        names, _, self.value = left.partition(" ")
        self.left = left
        self.short = next((name for name in names.split(",") if not name.startswith("--")), None)
        self.long = next((name for name in names.split(",") if name.startswith("--")), None)
        self.text = ""

    def kind(self):
        """Of its value: what one of several commands takes as a list is the same for another that takes one."""
        return "one of" if "|" in self.value else self.value.strip("[]").removesuffix(",...") if ":" not in self.value else self.value


def help_of(command):
    outcome = run(command, "--help") if command else run("--help")
    expect(outcome.status == 0, f"{command} --help", outcome)
    return outcome.out


def options_of(command):
    found = []
    for line in help_of(command).splitlines():
        if line.startswith("  -"):
            left, _, text = line[2:].partition("  ")
            found.append(Option(left))
            found[-1].text = text.strip()
        elif line.startswith(" " * TEXT_COLUMN) and found:
            found[-1].text = f"{found[-1].text} {line.strip()}".strip()
    return found


def all_options():
    """Command and option."""
    return [(command, option) for command in shared.subcommands() for option in options_of(command)]


def table():
    """One row for each way an option is written and each thing it does, by its long name."""
    rows = {}
    for command, option in all_options():
        text = re.sub(r" \([^()]*(default|not with|required)[^()]*\)$", "", option.text)
        rows.setdefault((option.left, text), []).append(command)
    everywhere = len(shared.subcommands())
    lines = ["| option | what it does | commands |", "|---|---|---|"]
    for (left, text), commands in sorted(rows.items(), key=lambda row: (Option(row[0][0]).long or "", row[0])):
        where = "all" if len(commands) == everywhere else ", ".join(f"`{command}`" for command in commands)
        lines.append("| `{}` | {} | {} |".format(left.replace("|", "\\|"), text.replace("|", "\\|"), where))
    return "\n".join(lines)


def test_options_help_has_one_form():
    for command in ["", *shared.subcommands()]:
        text = help_of(command)
        for line in text.splitlines():
            expect(not re.search(LEFTOVERS, line), f"{command} --help: the form of CLI11: {line}")
            expect(len(line) <= 120, f"{command} --help: {len(line)} columns: {line}")
            if line.startswith("  -"):
                expect(re.match(r"  (-\S,)?--[a-z-]+( \S+)?($|  )|  -\S( \S+)?($|  )", line), f"{command} --help: {line}")
        expect("\n\n\n" not in text, f"{command} --help: two empty lines\n{text}")
        for option in options_of(command):
            expect(option.text and option.text[0].isupper() or option.text[:4] in ("send", "tabl"), f"{command} --help: {option.left}: {option.text}")


def test_options_texts_are_true_by_themselves():
    """In the table an option stands without its neighbours."""
    for command, option in all_options():
        expect(not re.search(r"\b(before|executes) them\b|\bthat adapter\b|\binstead$|^Beside it|^Batches$", option.text),
               f"{command} --help: {option.left}: speaks of another option: {option.text}")
        if option.long == "--timeout":
            expect(re.match(r"Of (the whole run|one \w+|all rounds together)\b", option.text), f"{command} --help: what --timeout is of: {option.text}")
        if option.long == "--json":
            expect(option.text.startswith("Also write everything as JSON to this file; "), f"{command} --help: --json: {option.text}")


def meanings(options, key_of, meaning_of):
    """Names that have several meanings, with the commands of each."""
    found = {}
    for command, option in options:
        if key_of(option):
            found.setdefault(key_of(option), {}).setdefault(meaning_of(option), []).append(command)
    return {name: all_of_it for name, all_of_it in found.items() if len(all_of_it) > 1}


def test_options_names_mean_one_thing():
    options = all_options()
    expect(len(options) > 300, f"{len(options)} options")
    several = meanings(options, lambda option: option.long, Option.kind)
    several.pop("--require")  # of a transfer, a path; of a node, whatever a job needs
    expect(not several, f"long names with several meanings: {several}")
    own = [(command, option) for command, option in options if command not in KEPT]
    several = meanings(own, lambda option: option.short, lambda option: option.long)
    expect(not several, f"letters with several meanings: {several}")
    for tool in set(KEPT.values()):
        letters = [(command, option) for command, option in options if KEPT.get(command) == tool and option.short]
        expect(letters, f"no letters of {tool}")


def test_options_old_names_are_taken():
    for command, old, value, new in OLD:
        expect(not re.search(rf"^  .*{old}\b", help_of(command), re.MULTILINE) or old == new, f"{command} --help shows {old}")
        outcome = run(command, f"{old}={value}" if old.startswith("--") else old, *([] if old.startswith("--") else [value]))
        expect_refusal(outcome, 2, new)
        current = new if new != old else "--timeout"
        expect(f"note: {old} is called {current} now" in outcome.err, f"{command} {old}: no note of its new name", outcome)
    for command in ("doctor", "survey"):
        outcome = run(command, "--no-trials", "--json=/nonexistent/folder/x.json")
        expect_refusal(outcome, 1, "/nonexistent/folder/x.json")
        expect("note: --no-trials is called --no-probes now" in outcome.err, f"{command} --no-trials: no note of its new name", outcome)
    for words in (("matvec", "-m64"), ("tune", "-dhost"), ("tune", "--dry-run"), ("latency", "-n", "2", "--kind", "put")):
        said = run(*words, "--timeout", "0").err
        expect(len(re.findall(r"^note: .* is called .* now$", said, re.MULTILINE)) <= 1, f"{words}: more than one note: {said}")
    for words in (("matvec", "-m64"), ("tune", "-dhost"), ("tune", "--dry-run")):
        expect(" is called " in run(*words, "--timeout", "0").err, f"{words}: no note")
    outcome = run("run", "-n", "1", "/bin/echo", "--warm-up", "5", "--kind", "x", "--no-trials")
    expect("note:" not in outcome.err, "another program's options are not ours", outcome)
    outcome = run("explain", "trial.copy")
    expect(outcome.status == 0 and outcome.out.startswith("probe.copy: ") and outcome.err == "note: the check trial.copy is called probe.copy now\n",
           "explain", outcome)
    expect("near ones are probe." in run("explain", "trial.copi").err, "explain: near ones of an old id")
    for command in ("tune", "calibrate"):
        expect("--dry-run" not in help_of(command), f"{command} --help shows --dry-run")
    expect_refusal(run("tune", "--dry-run", "--store"), 2, "--store")


def test_options_are_in_the_documentation():
    text = PAGE.read_text(encoding="utf-8")
    wanted = table()
    found = re.search(r"<!-- options -->\n(.*?)\n<!-- /options -->", text, re.DOTALL)
    expect(found and found.group(1) == wanted, f"{PAGE} does not hold between its marks what the program says:\n{wanted}")
    for command, tool in KEPT.items():
        expect(re.search(rf"^\| .*`{command}`.* \| .*{tool}.* \|", text, re.MULTILINE), f"{PAGE} does not say that {command} keeps {tool}'s")


def test_options_that_are_unknown_name_the_nearest():
    for arguments, typed, meant in ((("bogus",), "bogus", None), (("sanit",), "sanit", "sanity"), (("streams", "--sise", "3"), "--sise", "--size"),
                                    (("bw", "--unknown"), "--unknown", None), (("copylat", "--sise=3"), "--sise", "--size"),
                                    (("latency", "--operation", "send"), "--operation", None), (("copylat", "-sise"), "-s", None),
                                    (("doctor", "-verbos"), "-verbos", "--verbose"), (("latency", "--accel", "x"), "--accel", "--accelerator")):
        outcome = run(*arguments)
        if typed == "-s":  # the letter with its value
            expect_refusal(outcome, 2, "ise")
            continue
        expect_refusal(outcome, 2, f"'{typed}'", *([f"did you mean '{meant}'?"] if meant else []))
        offered = re.search(r"did you mean '(.*?)'", outcome.err)
        command = "" if len(arguments) == 1 else arguments[0]
        expect(not offered or offered.group(1) in help_of(command), f"{arguments}: offers what is not shown", outcome)
        expect(meant or not offered or typed == "--operation", f"{arguments}: offers something", outcome)
    # One or two letters are near to everything.
    for arguments in (("copylat", "-z"), ("streams", "-q"), ("info", "-zz"), ("info", "--x"), ("--y",), ("zz",)):
        outcome = run(*arguments)
        expect_refusal(outcome, 2, f"'{arguments[-1]}'")
        expect("did you mean" not in outcome.err, f"{arguments}: offers something", outcome)


def test_options_that_are_unknown_are_named_first():
    """Whatever else is wrong with the command line."""
    for arguments in (("compare", "--bogus"), ("run", "--bogus"), ("run", "-n", "two", "--bogus"), ("copylat", "--bogus", "-s", "12q"),
                      ("latency", "D", "D", "D", "--bogus"), ("latency", "-m", "1", "-m", "2", "--bogus"), ("info", "word", "--bogus"),
                      ("doctor", "--list", "--only", "pci", "--bogus"), ("latency", "--bogus", "-m"), ("doctor", "--bogus", "--all=banana")):
        outcome = run(*arguments)
        expect_refusal(outcome, 2, "'--bogus' is not one of its options", f"see 'gigabar {arguments[0]} --help'")
    expect_refusal(run("--bogus", "info"), 2, "gigabar: '--bogus' is not one of its options", "see 'gigabar --help'")
    expect_refusal(run("compare", "--flor", "0.1"), 2, "'--flor'", "did you mean '--floor'?")


# Of CLI11's own sentences, a part of each that its Error.hpp has.
RAW = (r"required but received|\d required |is required\b|Could not convert|not an allowed value|too many inputs|Should be true|excludes |requires "
       r"|following argument|Expected (exactly|at least)|disallowed|A subcommand|Exactly 1|Requires at |[A-Z]+ in \[")


def expect_own_words(arguments, *words):
    outcome = run(*arguments)
    expect_refusal(outcome, 2, *words, "see 'gigabar")
    expect(not re.search(RAW, outcome.err), f"{arguments}: a sentence of CLI11", outcome)


def test_options_that_are_wrong_are_told_in_our_words():
    # Too many words and values.
    expect_own_words(("compare", "a", "b", "c"), "'c' was not expected", "leave it out")
    expect_own_words(("info", "sanity"), "'sanity' was not expected")
    expect_own_words(("info", "--", "-x"), "'-x'")
    expect_own_words(("latency", "D", "D", "D"), "buffers: 3 are given, and it takes 2 at most")
    expect_own_words(("latency", "-m", "1", "-m", "2"), "--message-size is given 2 times; give it once")
    expect_own_words(("tune", "-d", "host", "-d", "host"), "-d is given 2 times; give it once")  # has no name that is shown
    # Too few.
    expect_own_words((), "a subcommand is missing")
    expect_own_words(("compare",), "FIRST is missing (The JSON file", "SECOND is missing")
    expect_own_words(("compare", "a"), "SECOND is missing")
    expect_own_words(("run", "--", "true"), "--ranks is missing (How many ranks)")
    expect_own_words(("run", "-n", "2"), "program is missing")
    expect_own_words(("info", "--json"), "--json has no value; write --json FILE")
    expect_own_words(("sanity", "-t"), "--test has no value; write --test NAME")
    expect_own_words(("sanity", "-vt"), "--test has no value; write --test NAME")
    expect_own_words(("sanity", "--peer"), "--peer has no value; write --peer ")
    # What cannot go together.
    expect_own_words(("doctor", "--list", "--only", "pci"), "--only", "--list", "cannot go together; leave one of them out")
    expect_own_words(("topology", "--capture", "x", "--sysroot", "y"), "--sysroot", "--capture", "cannot go together")
    # Values of flags.
    expect_own_words(("doctor", "--all=banana"), "--all takes no value; leave '=banana' out")
    expect_own_words(("survey", "--no-probes=x"), "--no-probes takes no value")
    for flag in ("--no-probes", "--all"):  # the value is true, however large
        outcome = run("doctor", f"{flag}=99999999999999999999", "--list")
        expect(outcome.status == 0, f"{flag}: a large number is refused", outcome)


def test_options_with_numbers_refuse_what_is_none():
    """In our words, naming the option or its letter."""
    count = 0
    for command, option in all_options():
        if option.value not in NUMBERS:
            continue
        count += 1
        outcome = run(command, f"{option.long}=~", *(("--", "true") if command == "run" else ()))
        expect_refusal(outcome, 2, "~")
        expect(option.long in outcome.err or f"{option.short} " in outcome.err, f"{command} {option.left}: is not named", outcome)
        expect(not re.search(RAW, outcome.err), f"{command} {option.left}: a sentence of CLI11", outcome)
    expect(count > 150, f"{count} options with numbers")


def test_options_with_an_empty_value_are_refused():
    for arguments in (("info", "--json="), ("doctor", "--symptom="), ("doctor", "--symptom", ""), ("streams", "-d", "0", "--size=")):
        expect_refusal(run(*arguments), 2, arguments[1 if arguments[0] != "streams" else 3].rstrip("="), "empty")
    # Each that takes something else than a number, as of a variable that is not set.
    count = 0
    for command, option in all_options():
        if not option.value or option.value in NUMBERS:
            continue
        count += 1
        needed = {"compare": ("a", "b"), "report": ("a",) if option.long == "--output" else ("a", "-o", "b")}.get(command, ())
        outcome = run(command, *needed, option.long, "")
        expect_refusal(outcome, 2)
        expect(option.long in outcome.err or f"{option.short} " in outcome.err, f"{command} {option.left}: is not named", outcome)
    expect(count > 150, f"{count} options with other values")
    # What stands behind '--' is another program's.
    outcome = run("run", "-n", "1", "--", "/bin/echo", "--json=")
    expect(outcome.status == 0 and outcome.out == "--json=\n", "an argument of the program", outcome)


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
