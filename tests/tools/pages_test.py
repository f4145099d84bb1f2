#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manual pages and completions that tools/gigabar/pages.py writes of `gigabar`: every command and option is in them, and they do what
they are for. Options and exit status as command_line_test.py.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import command_line_test as shared
import options_test
from command_line_test import expect

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATOR = ROOT / "tools" / "gigabar" / "pages.py"
GASPI_RUN = ROOT / "scripts" / "gaspi_run"


@functools.cache
def written():
    """The folder with what is written."""
    folder = pathlib.Path(shared.FOLDER) / "pages"
    command = [sys.executable, "-B", str(GENERATOR), shared.OPTIONS.program, "0.1.0", str(folder), str(GASPI_RUN)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=shared.environment())
    expect(done.returncode == 0, f"pages.py: {done.stderr}")
    return folder


def names_of(command):
    return [name for option in options_test.options_of(command) for name in (option.short, option.long) if name]


def text_of(page):
    """As a reader sees it: without the marks of roff."""
    return re.sub(r"\\f[BRI]|\\&", "", page.read_text(encoding="utf-8")).replace("\\-", "-").replace("\\e", "\\")


def accept(program, *arguments):
    """Where the program is installed, it takes the file without a word."""
    if shutil.which(program) is None:
        return False
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"})
    expect(done.returncode == 0 and not done.stderr, f"{program} {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    return True


def test_pages_manual_has_every_option():
    pages = {page.name for page in (written() / "man1").iterdir()}
    expect(pages == {"gigabar.1", "gaspi_run.1", *(f"gigabar-{command}.1" for command in shared.subcommands())}, f"pages: {sorted(pages)}")
    main = text_of(written() / "man1" / "gigabar.1")
    for command in shared.subcommands():
        expect(f"\n{command}\n" in main and f"gigabar-{command} (1)" in main, f"gigabar.1 does not name {command}")
    for command in ["", *shared.subcommands()]:
        text = text_of(written() / "man1" / f"gigabar{'-' if command else ''}{command}.1")
        for option in options_test.options_of(command):
            names = ", ".join(name for name in (option.short, option.long) if name)
            # Of the program itself, whose help goes on with its commands, the name alone.
            expect(f".TP\n{names}{' ' if option.value else ''}{option.value}\n{option.text if command else ''}" in text, f"{command}: {option.left}")
        notes = [line for line in options_test.help_of(command).split("\n\n")[-1].splitlines() if not line.startswith(" ")]
        for line in notes:
            expect(f"\n{line}\n" in text or f"\n.SH {line[:-1].upper()}\n.TP\n" in text, f"gigabar-{command}.1 does not say: {line}")


def test_pages_manual_of_gaspi_run():
    text = text_of(written() / "man1" / "gaspi_run.1")
    for flag in ("-h", "--help"):
        done = subprocess.run([str(GASPI_RUN), flag], capture_output=True, text=True, check=False)
        expect(done.returncode == 0 and not done.stderr, f"gaspi_run {flag}: {done.returncode}\n{done.stderr}")
    title, usage, *lines = done.stdout.splitlines()
    expect(f".SH NAME\ngaspi_run - {title}\n.SH SYNOPSIS\n.B gaspi_run\n{usage.removeprefix('Usage: gaspi_run ')}\n.SH OPTIONS\n" in text, text)
    rows = [line[2:].partition("  ") for line in lines if line.startswith("  ")]
    taken = set(re.search(r"getopts ':(\S+)'", GASPI_RUN.read_text(encoding="utf-8")).group(1)) - {":"}
    expect({row[0][1] for row in rows if row[0].startswith("-")} == taken, f"gaspi_run takes {sorted(taken)}: {rows}")
    for left, _, meaning in rows:
        expect(f".TP\n{left.replace(',', ', ')}\n{meaning.strip()}\n" in text, f"gaspi_run.1 does not say: {left}")
    for line in lines[-2:]:
        expect(f"\n{line}\n" in text, f"gaspi_run.1 does not say: {line}")


def test_pages_manual_is_formatted():
    for page in sorted((written() / "man1").iterdir()):
        accept("man", "--warnings", "-l", str(page))
        accept("mandoc", "-T", "lint", "-W", "warning", str(page))
        # Without either: every line that begins as a request is one of man(7).
        for line in page.read_text(encoding="utf-8").splitlines():
            expect(not line.startswith((".", "'")) or re.match(r"\.(TH|SH|TP|B|BR|br)\b", line), f"{page.name}: {line}")


def test_pages_bash_completes():
    file = written() / "bash" / "gigabar"
    expect(accept("bash", "-n", str(file)), "there is no bash")

    def offered(*words):
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gigabar; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", script, "bash", str(file), "gigabar", *words], capture_output=True, text=True, check=True, cwd=shared.FOLDER)
        return done.stdout.split()

    expect(sorted(offered("")) == sorted([*shared.subcommands(), *names_of("")]), f"commands: {offered('')}")
    expect(offered("doc") == ["doctor"], f"doc: {offered('doc')}")
    for command in shared.subcommands():
        expect(sorted(offered(command, "-")) == sorted(names_of(command)), f"{command}: {offered(command, '-')}")
        for option in options_test.options_of(command):
            if re.fullmatch(r"[a-z0-9_|-]+", option.value) and "|" in option.value:
                expect(offered(command, option.long, "") == option.value.split("|"), f"{command} {option.left}: {offered(command, option.long, '')}")
    (pathlib.Path(shared.FOLDER) / "a-report.json").touch()
    for words in (("survey", "--json"), ("doctor", "--sysroot")):
        expect("a-report.json" in offered(*words, "a-rep"), f"no file behind {words}")
    if "latency" in shared.subcommands():  # a path of a transfer is no file
        expect(offered("latency", "--require", "") == ["gdr", "p2p", "bar", "staged"], f"--require: {offered('latency', '--require', '')}")
    expect(offered("doctor", "--timeout", "") == [], "something where only the user knows")


def test_pages_zsh_and_fish_have_every_option():
    zsh, fish = written() / "zsh" / "_gigabar", written() / "fish" / "gigabar.fish"
    accept("zsh", "-n", str(zsh))
    accept("fish", "-n", str(fish))
    text = zsh.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^    ([a-z-]+)\)\n(.*?)^      ;;", text, re.DOTALL | re.MULTILINE))
    lines = fish.read_text(encoding="utf-8").splitlines()
    for command in shared.subcommands():
        expect(re.search(rf"^    '{command}:", text, re.MULTILINE), f"zsh: no {command}")
        expect(any(f"-a {command} -d" in line for line in lines), f"fish: no {command}")
        own = [line for line in lines if f"__fish_seen_subcommand_from {command}'" in line]
        for name in names_of(command):
            expect(f"'*{name}[" in sections[command], f"zsh: {command} has no {name}")
            word = f"-l {name[2:]}" if name.startswith("--") else f"-s '{name[1:]}'"
            expect(any(f" {word} " in f"{line} " for line in own), f"fish: {command} has no {name}")


shared.CASES = {name.removeprefix("test_"): function for name, function in list(globals().items()) if name.startswith("test_")}

if __name__ == "__main__":
    sys.exit(shared.main())
