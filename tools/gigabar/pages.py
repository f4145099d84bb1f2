#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py PROGRAM VERSION FOLDER [GASPI_RUN]: writes a manual page for each command of `gigabar`, and completions for bash, zsh and fish, from
what the program's own --help says of its options (its form is that of support/command_line.cpp). GASPI_RUN, the script, gets a page too.

FOLDER gets man1/*.1, bash/gigabar, zsh/_gigabar and fish/gigabar.fish."""

import dataclasses
import pathlib
import re
import subprocess
import sys

TEXT_COLUMN = 30
FILES = {"FILE", "PATH"}  # values that are names of files


@dataclasses.dataclass
class Row:
    """An option, a positional or a subcommand."""
    names: list
    value: str = ""
    text: str = ""

    def values(self):
        """The words that may stand behind it, where it names them all."""
        words = self.value.strip("[]").split("|")
        return words if len(words) > 1 and all(re.fullmatch(r"[a-z0-9_-]+", word) for word in words) else []

    def takes_file(self):
        return self.value.strip("[]").removesuffix("...") in FILES


@dataclasses.dataclass
class Help:
    description: str = ""
    usage: str = ""
    sections: dict = dataclasses.field(default_factory=dict)  # heading: rows
    footer: list = dataclasses.field(default_factory=list)

    def options(self):
        return [row for rows in self.sections.values() for row in rows if row.names[0].startswith("-")]

    def subcommands(self):
        return self.sections.get("Subcommands", [])


def row_of(line):
    left, _, text = line[2:].partition("  ")
    names, _, value = left.partition(" ")
    return Row(names.split(","), value.strip(), text.strip())


def parse(text):
    lines = text.splitlines()
    result = Help(lines[0], lines[1].removeprefix("Usage: "))
    rows = None
    for line, following in zip(lines[2:], [*lines[3:], ""]):
        if line.startswith(" " * TEXT_COLUMN):
            rows[-1].text = f"{rows[-1].text} {line.strip()}".strip()
        elif line.startswith("  ") and rows is not None:
            rows.append(row_of(line))
        elif line.endswith(":") and following.startswith("  ") and not result.footer:  # a sentence may end so too
            rows = result.sections.setdefault(line[:-1], [])
        elif line or result.footer:
            rows = None
            result.footer.append(line)
    return result


def help_of(program, *command):
    return parse(subprocess.run([program, *command, "--help"], check=True, capture_output=True, text=True).stdout)


# --- Manual pages ---------------------------------------------------------------------------------------------------------------------

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def tagged(row):
    names = ", ".join(f"\\fB{roff(name)}\\fR" for name in row.names)
    value = f" \\fI{roff(row.value)}\\fR" if row.value else ""
    return f".TP\n{names}{value}\n{roff(row.text)}\n"


def notes(lines):
    """Filled as text; a line that begins with blanks, or behind the end of a sentence, stays one."""
    parts = []
    for before, line in zip(["", *lines], lines):
        is_apart = before.endswith(".") or before.startswith(" ") or line.startswith(" ")
        parts += [".br\n"] * bool(before and is_apart) + [f"{roff(line)}\n"]
    return "".join(parts)


def page(name, version, text, every_page):
    arguments = text.usage.split(" ", len(name.split("-", 1)))[-1] if " " in text.usage else ""
    lines = [f'.TH {name.upper().replace("-", chr(92) + "-")} 1 "" "gigabar {version}" "Gigabar"\n', ".SH NAME\n", f"{roff(name)} \\- {roff(text.description)}\n",
             ".SH SYNOPSIS\n", f".B {roff(text.usage.removesuffix(arguments).strip())}\n{roff(arguments)}\n"]
    for heading, rows in text.sections.items():
        lines.append(f".SH {roff(heading.upper())}\n")
        lines.extend(tagged(row) for row in rows)
    if text.footer:
        lines += [".SH NOTES\n", notes([line for line in text.footer if line])]
    lines += [".SH SEE ALSO\n", ",\n".join(f".BR {roff(other)} (1)" for other in every_page if other != name).replace(",\n", " ,\n") + "\n"]
    return "".join(lines)


# --- Completions ----------------------------------------------------------------------------------------------------------------------

def bash(program, commands):
    def cases(select):
        return "".join(f"    {name}{pattern})\n      {action}\n      return ;;\n" for name, pattern, action in select)

    values = []
    for command, text in commands.items():
        for option in text.options():
            pattern = "|".join(f"'{command} {name}'" for name in option.names)
            if option.values():
                values.append(("", pattern, f"mapfile -t COMPREPLY < <(compgen -W '{' '.join(option.values())}' -- \"$word\")"))
            elif option.takes_file():
                values.append(("", pattern, "mapfile -t COMPREPLY < <(compgen -f -- \"$word\")"))
            elif option.value and not option.value.startswith("["):
                values.append(("", pattern, "COMPREPLY=() # a value of the user's own"))
    options = [("", name, f"mapfile -t COMPREPLY < <(compgen -W '{' '.join(n for o in text.options() for n in o.names)}' -- \"$word\")")
               for name, text in commands.items()]
    top = " ".join([row.names[0] for row in program.subcommands()] + [name for option in program.options() for name in option.names])
    return f"""# SPDX-License-Identifier: Apache-2.0
# bash completion of gigabar; written by tools/gigabar/pages.py
_gigabar() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{top}' -- "$word")
    return
  fi
  case "$command $before" in
{cases(values)}  esac
  if [[ $word != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  fi
  case $command in
{cases(options)}  esac
}}
complete -o filenames -F _gigabar gigabar
"""


def quoted(text):
    return text.replace("'", "'\\''")


def zsh(program, commands):
    def spec(option):
        text = quoted(re.sub(r"([\[\]:\\])", r"\\\1", option.text))
        action = f"({' '.join(option.values())})" if option.values() else "_files" if option.takes_file() else " "
        value = "" if not option.value else f"{'::' if option.value.startswith('[') else ':'}{quoted(re.sub(r'([:])', r'-', option.value))}:{action}"
        return "".join(f"        '*{name}[{text}]{value}' \\\n" for name in option.names)

    names = "".join(f"    '{row.names[0]}:{quoted(row.text.replace(':', chr(92) + ':'))}'\n" for row in program.subcommands())
    cases = "".join(f"    {name})\n      _arguments \\\n{''.join(spec(o) for o in text.options())}        '*:file:_files'\n      ;;\n"
                    for name, text in commands.items())
    top = "".join(f"    '{name}[{quoted(option.text)}]' \\\n" for option in program.options() for name in option.names)
    return f"""#compdef gigabar
# SPDX-License-Identifier: Apache-2.0
# zsh completion of gigabar; written by tools/gigabar/pages.py
local -a commands
if (( CURRENT == 2 )); then
  commands=(
{names}  )
  _describe command commands
  _arguments \\
{top}    && return
else
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{cases}  esac
fi
"""


def fish(program, commands):
    def option_line(condition, option):
        words = [f"complete -c gigabar -n '{condition}'"]
        for name in option.names:
            words.append(f"-l {name[2:]}" if name.startswith("--") else f"-s '{name[1:]}'")
        if option.values():
            words.append(f"-x -a '{' '.join(option.values())}'")
        elif option.value and not option.value.startswith("["):
            words.append("-r -F" if option.takes_file() else "-x")
        return " ".join(words) + f" -d '{fish_text(option.text)}'\n"

    def fish_text(text):
        return text.replace("\\", "\\\\").replace("'", "\\'")

    lines = ["# SPDX-License-Identifier: Apache-2.0\n# fish completion of gigabar; written by tools/gigabar/pages.py\n"]
    for row in program.subcommands():
        lines.append(f"complete -c gigabar -f -n __fish_use_subcommand -a {row.names[0]} -d '{fish_text(row.text)}'\n")
    lines += [option_line("__fish_use_subcommand", option) for option in program.options()]
    for name, text in commands.items():
        lines += [option_line(f"__fish_seen_subcommand_from {name}", option) for option in text.options()]
    return "".join(lines)


def main():
    executable, version, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    program = help_of(executable)
    commands = {row.names[0]: help_of(executable, row.names[0]) for row in program.subcommands()}
    every_page = ["gigabar", *(f"gigabar-{name}" for name in commands)]
    written = {f"man1/gigabar-{name}.1": page(f"gigabar-{name}", version, text, ["gigabar"]) for name, text in commands.items()}
    written["man1/gigabar.1"] = page("gigabar", version, program, every_page)
    for script in sys.argv[4:]:
        name = pathlib.Path(script).name
        written[f"man1/{name}.1"] = page(name, version, help_of(script), ["gigabar"])
    written |= {"bash/gigabar": bash(program, commands), "zsh/_gigabar": zsh(program, commands), "fish/gigabar.fish": fish(program, commands)}
    for name, content in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
