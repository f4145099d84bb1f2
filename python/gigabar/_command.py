# SPDX-License-Identifier: Apache-2.0
"""Runs the program `gigabar` for calls that return its documents."""

import json
import math
import numbers
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeVar

from ._errors import Error, TimedOut
from ._parts import Unexpected, part_of
from ._program import PATH
from .documents import Document

MAX_SECONDS = 1e6  # of a deadline: what the system's calls take
GRACE_SECONDS = 10.0  # for the program to end after an interrupt

D = TypeVar("D", bound=Document)


def refuse(operation: str, argument: str, cause: str, remedy: str) -> NoReturn:
    message = f"{operation}: {argument}: {cause}; {remedy}"
    raise Error("invalid_argument", operation, argument, cause, remedy, message=message)


def text_of(value: object, operation: str, argument: str) -> str:
    """An argument as a word of the command line."""
    if isinstance(value, (str, os.PathLike)):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{operation}: {argument}: text is expected, and it is {type(value).__name__}")
    if "\0" in value or not value:
        refuse(operation, argument, "it is empty, or has a NUL character", "pass other text")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        refuse(operation, argument, "it cannot be encoded", "pass other text")
    return value


def number_of(value: object, operation: str, argument: str) -> str:
    """The same for a number. The program knows the limits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{operation}: {argument}: a number is expected, and it is {type(value).__name__}")
    return str(value)


def texts_of(values: object, operation: str, argument: str) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise TypeError(f"{operation}: {argument}: a list of texts is expected, and it is {type(values).__name__}")
    return [text_of(one, operation, argument) for one in values]


def deadline_of(timeout: object, operation: str) -> float | None:
    """Seconds, or None."""
    if timeout is None:
        return None
    seconds = float(number_of(timeout, operation, "timeout"))
    if not 0 <= seconds < math.inf:
        refuse(operation, "timeout", f"it is {seconds}", "pass seconds from 0 on, or None")
    return min(seconds, MAX_SECONDS)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """As by Ctrl-C, so that the program tidies up; by force when that takes too long, and at a second Ctrl-C."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()


def _output(operation: str, words: Sequence[str], deadline: float | None) -> tuple[bytes, str, int]:
    try:
        # In a process group of its own: Ctrl-C in a terminal reaches it through this process, once.
        process = subprocess.Popen(
            [PATH, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
    except OSError as error:
        cause, remedy = f"{PATH} cannot be started: {error.strerror}", "install the package again"
        raise Error("unavailable", operation, "program", cause, remedy, native=error.strerror or "") from error
    with process:
        try:
            out, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            _end(process)
            cause, remedy = f"the program ran for {deadline} s", "pass a longer timeout, or measure less"
            message = f"{operation}: timeout: {cause}; {remedy}"
            raise TimedOut("timed_out", operation, "timeout", cause, remedy, message=message) from None
        except BaseException:  # Ctrl-C
            _end(process)
            raise
    return out, err.decode(errors="replace"), process.returncode


def _failure(operation: str, said: str, status: int, arguments: Mapping[str, str]) -> Error:
    """What the program said on standard error: 'gigabar COMMAND: --option: cause; remedy'."""
    if status < 0:
        kind, text = "unavailable", f"the program was ended by signal {-status}"
    else:
        kind = "invalid_argument" if status == 2 else "unavailable"
        lines = [line for line in said.splitlines() if line.startswith("gigabar")]
        text = re.sub(r"^gigabar[^:]*: ", "", lines[-1]) if lines else f"the program ended with status {status}"
    text = re.sub(r"; see '.*--help'$", "", text)
    name = ""
    for words, argument in arguments.items():
        if re.match(re.escape(words) + r"[: ]", text):
            name = argument
            if not words.startswith(os.sep):  # a file is named as its own
                text = text[len(words) :].lstrip(": ")
            break
    cause, _, remedy = text.rpartition("; ") if "; " in text else (text, "", "")
    message = ": ".join(part for part in (operation, name, text) if part)
    return Error(kind, operation, name, cause, remedy, message=message)


def run(kind: type[D], operation: str, words: Sequence[str], deadline: float | None, arguments: Mapping[str, str]) -> D:
    """Runs the program, and returns its document.

    arguments: of the caller, by what the program calls them in its messages. A document counts whatever the exit status is: FAILs of
    the doctor, worse figures and failed transfers are in it.
    """
    out, said, status = _output(operation, [*words, "--json=-"], deadline)
    if not out.strip():
        raise _failure(operation, said, status, arguments)
    try:
        return part_of(kind, json.loads(out), "document")
    except (ValueError, RecursionError, Unexpected) as error:
        cause, remedy = f"the program's document cannot be read: {error}", "install the package again"
        raise Error("bad_file", operation, "document", cause, remedy) from error
