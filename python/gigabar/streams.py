# SPDX-License-Identifier: Apache-2.0
"""Many transfers at once, between GPUs and between GPUs and the host."""

from collections.abc import Sequence

from . import _command
from .documents import StreamsDocument

__all__ = ["run"]


def run(
    transfers: Sequence[str],
    *,
    nbytes: int = 1 << 30,
    iterations: int | None = None,
    seconds: float | None = None,
    repeats: int = 5,
    verify: bool = True,
    executor: str = "ce",
    pages: str = "pinned",
    numa_affinity: bool = True,
    stage: bool = False,
    expect: float | None = None,
    repeat_timeout: float = 300.0,
    timeout: float | None = 3600.0,
) -> StreamsDocument:
    """Run transfers at the same time, and return their rates together and alone, beside the rates of their links.

    transfers: in words, as 'gpu0->gpu1 ce', 'host->gpu* sm bytes=64M group=a' (docs/streams.md). The other arguments are for
    transfers that do not say it themselves: nbytes of one copy, the number of copies or the seconds to copy for (one of both; None:
    100 copies), executor (ce, sm, cpu, with -push, -pull, :BLOCKS or :THREADS), pages of host memory (pinned, pageable, wc, huge),
    numa_affinity (host memory on the GPU's NUMA node), stage (the driver may stage copies between GPUs through the host).
    repeats: whole runs, 1 to 1000, over which medians are taken. verify: compare what arrived. expect: the share of its link's rate
    that each transfer needs. repeat_timeout: seconds of one repeat, which is ended then. timeout: seconds of all; None: no limit.
    A transfer that failed, or is below expect, is a result: see its error and ratio. Results on stand-ins say nothing about a GPU.
    Other threads run meanwhile, and Ctrl-C ends it.
    Errors: invalid_argument names the argument and the place in it, device_error, TimedOut.
    """
    operation = "streams.run"
    deadline = _command.deadline_of(timeout, operation)
    texts = _command.texts_of(transfers, operation, "transfers")
    if not texts:
        _command.refuse(operation, "transfers", "it is empty", "pass at least one transfer")
    if iterations is not None and seconds is not None:
        _command.refuse(operation, "seconds", "it was given together with iterations", "pass one of both")
    options: list[tuple[str, str, object]] = [
        ("--size", "nbytes", nbytes),
        ("--iter", "iterations", iterations),
        ("--seconds", "seconds", seconds),
        ("--repeats", "repeats", repeats),
        ("--expect", "expect", expect),
        ("--timeout", "repeat_timeout", repeat_timeout),
    ]
    words = ["streams"]
    for option, name, value in options:
        if value is not None:
            words.append(f"{option}={_command.number_of(value, operation, name)}")
    words.append("--executor=" + _command.text_of(executor, operation, "executor"))
    words.append("--pages=" + _command.text_of(pages, operation, "pages"))
    for option, is_wanted in (("--no-verify", not verify), ("--no-numa-affinity", not numa_affinity), ("--stage", stage)):
        if is_wanted:
            words.append(option)
    words += [f"--transfer={text}" for text in texts]
    arguments = {option: name for option, name, _ in options}
    arguments |= {"-t": "transfers", "check plan": "transfers", "--transfer": "transfers", "--executor": "executor", "--pages": "pages"}
    return _command.run(StreamsDocument, operation, words, deadline, arguments)
