# SPDX-License-Identifier: Apache-2.0
"""What this machine is made of, what is wrong with it, how fast it is, and what changed."""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import _command
from ._core import availability_members
from ._parts import part_of
from .documents import Availability, CompareDocument, DoctorDocument, SurveyDocument, TopologyDocument


def availability(machine: str | os.PathLike[str] | None = None) -> Availability:
    """Return which paths, libraries and kernel interfaces can be used, each with the reason and a remedy.

    machine: as of topology; the libraries are those of this machine only. Other threads run meanwhile: the first call initialises
    CUDA (up to hundreds of ms), a captured machine takes seconds. Errors: invalid_argument (machine), no_permission, bad_file.
    """
    name = None if machine is None else _command.text_of(machine, "availability", "machine")
    return part_of(Availability, availability_members(name), "availability")


def topology(machine: str | os.PathLike[str] | None = None, *, timeout: float | None = 60.0) -> TopologyDocument:
    """Return the PCI tree, NUMA nodes, GPUs, NICs and NVLinks, and the route between any two of GPUs and NICs.

    machine: an archive of `gigabar topology --capture`, or a folder with sys/ and proc/ of another machine; None: this one.
    timeout: seconds; None: no limit.
    Stand-ins have no place in a machine. Other threads run meanwhile, and Ctrl-C ends it.
    Errors: invalid_argument (machine), unavailable (hwloc cannot be used), TimedOut.
    """
    deadline = _command.deadline_of(timeout, "topology")
    words = ["topology"]
    if machine is not None:
        words.append("--sysroot=" + _command.text_of(machine, "topology", "machine"))
    return _command.run(TopologyDocument, "topology", words, deadline, {"--sysroot": "machine"})


def doctor(
    *,
    machine: str | os.PathLike[str] | None = None,
    only: Sequence[str] = (),
    symptom: str | None = None,
    probes: bool = True,
    timeout: float = 30.0,
) -> DoctorDocument:
    """Check what decides which path a transfer takes and how fast it is. Nothing of the machine is changed.

    machine: as of topology. only: ids of checks, or groups by their first part ('pci'); empty: all.
    symptom: what is wrong, in words, or a message; runs the checks that explain it. Not with only.
    probes: False: only read; register, map and copy nothing.
    timeout: seconds; checks that have not begun by then are UNKNOWN. It ends 60 s later with TimedOut at the latest.
    A FAIL is a finding, not an error. Other threads run meanwhile, and Ctrl-C ends it.
    Errors: invalid_argument (machine, only, symptom, timeout), TimedOut.
    """
    seconds = _command.deadline_of(timeout, "doctor")
    if seconds is None:
        raise TypeError("doctor: timeout: seconds are expected, and it is None")
    words = ["doctor", f"--timeout={seconds}"]
    if machine is not None:
        words.append("--sysroot=" + _command.text_of(machine, "doctor", "machine"))
    names = _command.texts_of(only, "doctor", "only")
    if names and symptom is not None:
        _command.refuse("doctor", "only", "it was given together with symptom", "pass one of both")
    if names:
        words.append("--only=" + ",".join(names))
    if symptom is not None:
        text = _command.text_of(symptom, "doctor", "symptom")
        if text.startswith("@") or text == "-":
            _command.refuse("doctor", "symptom", "it names a file", "pass what the file says")
        words.append("--symptom=" + text)
    if not probes:
        words.append("--no-probes")
    arguments = {"--sysroot": "machine", "--only": "only", "--symptom": "symptom", "--timeout": "timeout"}
    return _command.run(DoctorDocument, "doctor", words, seconds + 60, arguments)


def survey(*, budget: float = 50.0, probes: bool = True, timeout: float | None = 600.0) -> SurveyDocument:
    """Measure this machine: topology, findings, copy times, and every path alone and together. Data is verified.

    budget: seconds, above 0 and up to 3600, about as long as it takes; what does not fit is left out and named in notes.
    probes: as of doctor. timeout: seconds; None: no limit. Results on stand-ins say nothing about a GPU.
    Other threads run meanwhile, and Ctrl-C ends it. Errors: invalid_argument (budget), device_error, TimedOut.
    """
    deadline = _command.deadline_of(timeout, "survey")
    words = ["survey", "--budget=" + _command.number_of(budget, "survey", "budget")]
    if not probes:
        words.append("--no-probes")
    return _command.run(SurveyDocument, "survey", words, deadline, {"--budget": "budget"})


Survey = SurveyDocument | str | os.PathLike[str]


def compare(first: Survey, second: Survey, *, floor: float = 0.1, timeout: float | None = 60.0) -> CompareDocument:
    """Return what changed between two surveys, with their noise taken into account.

    first, second: what survey returned, or a JSON file of `gigabar survey`. floor: a share, 0 to 1; lesser differences are noise.
    timeout: seconds; None: no limit. Worse figures are a result, not an error.
    Errors: invalid_argument (a file that is no survey, floor), TimedOut.
    """
    deadline = _command.deadline_of(timeout, "compare")
    words = ["compare", "--floor=" + _command.number_of(floor, "compare", "floor")]
    arguments = {"--floor": "floor"}
    with tempfile.TemporaryDirectory(prefix="gigabar-") as folder:
        for name, one in (("first", first), ("second", second)):
            if isinstance(one, SurveyDocument):
                path = Path(folder) / f"{name}.json"
                path.write_text(json.dumps(one.to_dict()))
            else:
                path = Path(_command.text_of(one, "compare", name)).absolute()
            arguments.setdefault(str(path), name)
            words.append(str(path))
        return _command.run(CompareDocument, "compare", words, deadline, arguments)
