# SPDX-License-Identifier: Apache-2.0
"""Many transfers at once, between GPUs and between GPUs and the host."""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar, Union

from . import _command
from .documents import Document, PresetDescription, PresetListDocument, PresetsDocument, StreamsDocument

__all__ = ["presets", "run", "run_presets"]

Sweep: TypeAlias = Union[tuple[int, int], tuple[int, int, int]]  # from, to, factor

D = TypeVar("D", bound=Document)


def _sweep_of(sweep: Sweep, operation: str) -> str:
    if not isinstance(sweep, tuple) or len(sweep) not in (2, 3):
        raise TypeError(f"{operation}: sweep: (from, to) or (from, to, factor) is expected")
    return ":".join(_command.number_of(one, operation, "sweep") for one in sweep)


def _run(
    kind: type[D],
    operation: str,
    chosen: list[str],
    names: dict[str, str],
    *,
    nbytes: int | None,
    iterations: int | None,
    seconds: float | None,
    sweep: Sweep | None,
    repeats: int,
    verify: bool,
    pages: str,
    numa_affinity: bool,
    stage: bool,
    plain: bool,
    link: float | None,
    expect: float | None,
    repeat_timeout: float | None,
    timeout: float | None,
) -> D:
    """chosen: the words that say what is run. names: of arguments, by what the program calls them."""
    deadline = _command.deadline_of(timeout, operation)
    if iterations is not None and seconds is not None:
        _command.refuse(operation, "seconds", "it was given together with iterations", "pass one of both")
    numbers: list[tuple[str, str, object]] = [
        ("--size", "nbytes", nbytes),
        ("--iter", "iterations", iterations),
        ("--seconds", "seconds", seconds),
        ("--repeats", "repeats", repeats),
        ("--expect", "expect", expect),
        ("--link", "link", link),
        ("--timeout", "repeat_timeout", repeat_timeout),
    ]
    words = ["streams", *chosen]
    for option, name, value in numbers:
        if value is not None:
            words.append(f"{option}={_command.number_of(value, operation, name)}")
    if sweep is not None:
        words.append("--sweep=" + _sweep_of(sweep, operation))
    words.append("--pages=" + _command.text_of(pages, operation, "pages"))
    flags = (("--no-verify", not verify), ("--no-numa-affinity", not numa_affinity), ("--stage", stage), ("--plain", plain))
    words += [option for option, is_wanted in flags if is_wanted]
    arguments = {option: name for option, name, _ in numbers}
    arguments |= {"--sweep": "sweep", "--pages": "pages", "--plain": "plain"} | names
    return _command.run(kind, operation, words, deadline, arguments)


def run(
    transfers: Sequence[str],
    *,
    nbytes: int | None = None,
    iterations: int | None = None,
    seconds: float | None = None,
    sweep: Sweep | None = None,
    repeats: int = 5,
    verify: bool = True,
    executor: str = "ce",
    pages: str = "pinned",
    numa_affinity: bool = True,
    stage: bool = False,
    plain: bool = False,
    link: float | None = None,
    expect: float | None = None,
    repeat_timeout: float | None = None,
    timeout: float | None = 3600.0,
) -> StreamsDocument:
    """Run transfers at the same time, and return their rates together and alone, beside the rates of their links.

    transfers: in words, as 'gpu0->gpu1 ce', 'host->gpu* sm bytes=64M group=a' (docs/streams.md). For those that do not say it
    themselves: nbytes of one copy (None: 2**30), the number of copies or the seconds to copy for (one of both; None: 100 copies),
    executor (ce, sm, cpu, with -push, -pull, :BLOCKS or :THREADS), pages of host memory (pinned, pageable, wc, huge),
    numa_affinity (host memory on the GPU's NUMA node), stage (the driver may stage copies between GPUs through the host).
    sweep: (from, to) or (from, to, factor): run all for each size from, from * factor (None: 2), ... up to to, in bytes; a result
    for each. repeats: whole runs, 1 to 1000, over which medians are taken. verify: compare what arrived.
    plain: also time plain cudaMemcpyAsync, alone, for copies between a GPU and the host. link: GB/s of links whose rate the machine
    does not tell. expect: the share of its link's rate that each transfer needs.
    repeat_timeout: seconds of one repeat, which is ended then (None: 300, and the seconds that were asked for).
    timeout: seconds of all; None: no limit.
    A transfer that failed, or is below expect, is a result: see its error and ratio. Results on stand-ins say nothing about a GPU.
    Other threads run meanwhile, and Ctrl-C ends it.
    Errors: invalid_argument names the argument and the place in it (plain: there is no GPU), device_error, TimedOut.
    """
    operation = "streams.run"
    texts = _command.texts_of(transfers, operation, "transfers")
    if not texts:
        _command.refuse(operation, "transfers", "it is empty", "pass at least one transfer")
    chosen = ["--executor=" + _command.text_of(executor, operation, "executor"), *(f"--transfer={text}" for text in texts)]
    names = {"-t": "transfers", "check plan": "transfers", "--transfer": "transfers", "--executor": "executor"}
    return _run(
        StreamsDocument,
        operation,
        chosen,
        names,
        nbytes=nbytes,
        iterations=iterations,
        seconds=seconds,
        sweep=sweep,
        repeats=repeats,
        verify=verify,
        pages=pages,
        numa_affinity=numa_affinity,
        stage=stage,
        plain=plain,
        link=link,
        expect=expect,
        repeat_timeout=repeat_timeout,
        timeout=timeout,
    )


def run_presets(
    names: Sequence[str],
    *,
    nbytes: int | None = None,
    iterations: int | None = None,
    seconds: float | None = None,
    sweep: Sweep | None = None,
    repeats: int = 5,
    verify: bool = True,
    pages: str = "pinned",
    numa_affinity: bool = True,
    stage: bool = False,
    plain: bool = False,
    link: float | None = None,
    expect: float | None = None,
    repeat_timeout: float | None = None,
    timeout: float | None = 3600.0,
) -> PresetsDocument:
    """Run test cases of nvbandwidth by name, cell by cell, and return their matrices and each cell's transfers.

    names: of presets(). nbytes of one copy (None: 2**29), iterations (None: 16). Cells of one that this machine cannot run are
    empty, and it says why (waived). A sweep gives a result for each preset and size. The other arguments, and errors: as of run.
    """
    operation = "streams.run_presets"
    texts = _command.texts_of(names, operation, "names")
    if not texts or "list" in texts:
        _command.refuse(operation, "names", "it names no preset", "pass names of gigabar.streams.presets()")
    return _run(
        PresetsDocument,
        operation,
        [f"--preset={text}" for text in texts],
        {"--preset": "names"},
        nbytes=nbytes,
        iterations=iterations,
        seconds=seconds,
        sweep=sweep,
        repeats=repeats,
        verify=verify,
        pages=pages,
        numa_affinity=numa_affinity,
        stage=stage,
        plain=plain,
        link=link,
        expect=expect,
        repeat_timeout=repeat_timeout,
        timeout=timeout,
    )


def presets(*, timeout: float | None = 60.0) -> tuple[PresetDescription, ...]:
    """Return the test cases that run_presets takes, and why this machine cannot run some. timeout: seconds; None: no limit.

    Errors: device_error, TimedOut.
    """
    operation = "streams.presets"
    deadline = _command.deadline_of(timeout, operation)
    return _command.run(PresetListDocument, operation, ["streams", "--list-presets"], deadline, {}).results
