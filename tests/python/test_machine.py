# SPDX-License-Identifier: Apache-2.0
"""Availability, topology, doctor, survey, compare and streams as dataclasses."""

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import gigabar
import gigabar._command
import pytest
from gigabar import documents

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
MACHINE = Path(__file__).parents[1] / "sysroots" / "captured" / "captured_h200_pair.json"
SMALL = "gpu0->gpu1 ce bytes=1M iterations=2"


@pytest.fixture(scope="module")
def surveyed() -> documents.SurveyDocument:
    return gigabar.survey(budget=1, probes=False)


def test_topology() -> None:
    found = gigabar.topology()
    assert found.tool == "topology" and found.origin.is_live and found.machine.cores >= 1
    assert found.topology.numa_nodes[0].memory_bytes > 0
    whole = found.to_dict()
    assert whole["results"][0] == found.topology.to_dict()
    whole["results"].clear()  # a copy
    assert found.to_dict()["results"] and pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.tool = "other"  # type: ignore[misc]


def test_availability() -> None:
    found = gigabar.availability()
    paths = {one.path: one for one in found.paths}
    assert {"mapping.rm", "mapping.dmabuf", "p2p"} <= paths.keys() and all(one.code and one.reason for one in found.paths)
    assert "libcuda" in {one.name for one in found.drivers}
    assert found.to_dict()["paths"][0]["path"] == found.paths[0].path
    captured = gigabar.availability(MACHINE)
    assert captured.drivers == () and len(captured.paths) == len(found.paths)


def test_doctor() -> None:
    found = gigabar.doctor(only=["lim", "numa"], probes=False)
    assert {one.check.split(".")[0] for one in found.results} == {"lim", "numa"}
    assert found.summary is not None and found.summary["findings"] == len(found.results)
    assert {one.verdict for one in found.results} <= {"FAIL", "WARN", "UNKNOWN", "PASS", "SKIP"}
    slow = gigabar.doctor(symptom="huge pages are missing", probes=False).symptom
    assert slow is not None and slow.checks and slow.lines[0].means


def test_survey_and_compare(surveyed: documents.SurveyDocument, tmp_path: Path) -> None:
    assert surveyed.device is not None and surveyed.device.is_stand_in
    assert surveyed.results and surveyed.passes.count >= 1 and surveyed.findings
    slower = surveyed.to_dict()
    for one in slower["results"]:
        one |= {"value": one["value"] * 3, "min": one["min"] * 3, "max": one["max"] * 3, "passes": 3}
    slower["machine"]["kernel"] = "other"
    file = tmp_path / "-second.json"
    file.write_text(json.dumps(slower))
    first = tmp_path / "first.json"
    first.write_text(json.dumps(surveyed.to_dict() | {"results": [one | {"passes": 3} for one in surveyed.to_dict()["results"]]}))
    found = gigabar.compare(first, file, floor=0.5)
    assert found.counts.worse + found.counts.better + found.counts.same == len(surveyed.results)
    assert [one.key for one in found.machine_changes] == ["kernel"]
    assert gigabar.compare(surveyed, surveyed).machine_changes == ()


def test_streams() -> None:
    found = gigabar.streams.run([SMALL, "host->gpu0 cpu bytes=64K"], iterations=3, repeats=2, expect=0.5)
    (run,) = found.results
    assert found.is_stand_in and run.error is None and len(run.totals) == 1
    first, second = run.transfers
    assert (first.source.device, first.destination.device) == (0, 1) and second.source.kind == "host"
    assert (first.iterations, second.iterations) == (2, 3)
    assert first.life_gb_per_s is not None and first.life_gb_per_s.median > 0 and len(first.life_gb_per_s.samples) == 2


def test_a_sweep_has_a_result_for_each_size() -> None:
    found = gigabar.streams.run(["gpu0->host ce"], iterations=2, repeats=1, sweep=(4096, 65536, 4), link=50.0, expect=0.01)
    assert [run.swept_bytes for run in found.results] == [4096, 16384, 65536]
    assert found.parameters.sweep_bytes == (4096, 16384, 65536) and found.parameters.assumed_link_gb_per_s == 50
    first = found.results[0].transfers[0]
    assert first.link is not None and first.link.gb_per_s == 50 and first.ratio is not None and first.bytes == 4096
    assert [run.swept_bytes for run in gigabar.streams.run([SMALL], repeats=1, sweep=(1, 4)).results] == [1, 2, 4]


def test_presets() -> None:
    all_of_them = {one.name: one for one in gigabar.streams.presets()}
    assert len(all_of_them) == 35 and all_of_them["device_to_device_latency_sm"].is_latency
    assert all_of_them["device_local_copy"].cells == 2 and not all_of_them["device_local_copy"].waived
    found = gigabar.streams.run_presets(["device_local_copy", "host_to_device_memcpy_ce"], nbytes=65536, iterations=2, repeats=1)
    assert [one.name for one in found.results] == ["device_local_copy", "host_to_device_memcpy_ce"]
    for one in found.results:
        (matrix,) = one.matrices
        assert one.unit == "GB/s" and len(matrix.rows) == 1 and len(matrix.rows[0]) == 2 and matrix.sum is not None
        assert [(cell.row, cell.column, cell.error) for cell in one.cells] == [(0, 0, None), (0, 1, None)]
        assert one.cells[1].transfers[0].bytes == 65536 and one.to_dict()["cells"][0]["measure"] == "cell"
    swept = gigabar.streams.run_presets(["device_local_copy"], iterations=1, repeats=1, sweep=(1024, 2048))
    assert [one.cells[0].swept_bytes for one in swept.results] == [1024, 2048]


# --- The classes are those of docs/schema.


def resolved(schema: dict[str, Any], root: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    while "$ref" in schema:
        file, _, name = schema["$ref"].partition("#/$defs/")
        root = json.loads((SCHEMAS / file).read_text()) if file else root
        schema = root["$defs"][name]
    return schema, root


Variant = tuple[dict[str, Any], dict[str, Any]]


def variants(schema: dict[str, Any], root: dict[str, Any]) -> list[Variant]:
    schema, root = resolved(schema, root)
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return [each for one in schema[word] for each in variants(one, root)]
    return [(schema, root)]


def json_types(schema: dict[str, Any]) -> set[str]:
    if "enum" in schema or "const" in schema:
        return {{str: "string", int: "integer"}[type(one)] for one in schema.get("enum", [schema.get("const")])}
    return {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])


def alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def same(hint: Any, found: list[Variant], is_required: bool, place: str) -> None:
    """The type of a member says what its schema says."""
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", tuple: "array", dict: "object"}
    said = {names.get(get_origin(one) or one, "object") for one in alternatives(hint)}
    wanted = {each for schema, _ in found for each in json_types(schema)}
    if not is_required and "null" not in wanted:
        said.discard("null")
    assert said == wanted, place
    for one in alternatives(hint):
        if get_origin(one) is tuple:
            items = [each for schema, root in found if "items" in schema for each in variants(schema["items"], root)]
            same(get_args(one)[0], items, True, f"{place}[]")
        elif isinstance(one, type) and issubclass(one, documents.Part):
            agrees(one, [each for each in found if each[0].get("type") == "object"], place)


def agrees(kind: type[documents.Part], found: list[Variant], place: str) -> None:
    fields = {one.name: one.default is dataclasses.MISSING for one in dataclasses.fields(kind) if one.name != "_members"}
    needed = {name for name, is_needed in fields.items() if is_needed}
    mine = [each for each in found if needed <= set(each[0]["required"]) and "title" not in each[0]["properties"].keys() - fields]
    assert mine, place
    members: dict[str, list[Variant]] = {}
    for schema, root in mine:
        for name, member in schema["properties"].items():
            if member.get("description", "").startswith("former name"):
                continue
            members[name] = members.get(name, []) + variants(member, root)
    members = {name: each for name, each in members.items() if [json_types(schema) for schema, _ in each] != [{"null"}]}
    assert members.keys() == fields.keys(), place
    for name, each in members.items():
        is_required = all(name in schema["required"] for schema, _ in mine)
        assert is_required == fields[name], f"{place}.{name}"
        same(get_type_hints(kind)[name], each, is_required, f"{place}.{name}")


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        (documents.TopologyDocument, "topology"),
        (documents.DoctorDocument, "doctor"),
        (documents.SurveyDocument, "survey"),
        (documents.CompareDocument, "compare"),
        (documents.StreamsDocument, "streams"),
        (documents.PresetsDocument, "streams"),
        (documents.PresetListDocument, "streams"),
    ],
)
def test_the_classes_have_what_the_schema_has(kind: type[documents.Document], file: str) -> None:
    root = json.loads((SCHEMAS / f"{file}.schema.json").read_text())
    agrees(kind, [(root, root)], kind.__name__)


def test_availability_has_what_the_schema_has() -> None:
    root = json.loads((SCHEMAS / "common.schema.json").read_text())
    agrees(documents.Availability, [(root["$defs"]["availability_report"], root)], "Availability")


# --- Errors.


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: gigabar.availability("/no/such/machine"), "/no/such/machine"),
        (lambda: gigabar.availability("\0"), "machine"),
        (lambda: gigabar.topology("/no/such/machine"), "machine"),
        (lambda: gigabar.topology("\ud800"), "machine"),
        (lambda: gigabar.topology(timeout=-1), "timeout"),
        (lambda: gigabar.topology(timeout=float("nan")), "timeout"),
        (lambda: gigabar.doctor(only=["no.such"]), "only"),
        (lambda: gigabar.doctor(only=["pci"], symptom="slow"), "only"),
        (lambda: gigabar.doctor(symptom="xyzzy"), "symptom"),
        (lambda: gigabar.doctor(symptom="@/etc/passwd"), "symptom"),
        (lambda: gigabar.doctor(timeout=0), "timeout"),
        (lambda: gigabar.survey(budget=-1), "budget"),
        (lambda: gigabar.compare("/no/such/file", "/no/such/other"), "first"),
        (lambda: gigabar.compare("/no/such/file", "/no/such/other", floor=2), "floor"),
        (lambda: gigabar.streams.run([]), "transfers"),
        (lambda: gigabar.streams.run([SMALL, "gpu0->gpu9"]), "transfers"),
        (lambda: gigabar.streams.run(["gpu0->host:77"]), "transfers"),
        (lambda: gigabar.streams.run([SMALL, ""]), "transfers"),
        (lambda: gigabar.streams.run([SMALL + "\0"]), "transfers"),
        (lambda: gigabar.streams.run([SMALL], nbytes=0), "nbytes"),
        (lambda: gigabar.streams.run([SMALL], iterations=0), "iterations"),
        (lambda: gigabar.streams.run([SMALL], iterations=1, seconds=1), "seconds"),
        (lambda: gigabar.streams.run([SMALL], repeats=0), "repeats"),
        (lambda: gigabar.streams.run([SMALL], executor="gpu"), "executor"),
        (lambda: gigabar.streams.run([SMALL], pages="small"), "pages"),
        (lambda: gigabar.streams.run([SMALL], expect=7), "expect"),
        (lambda: gigabar.streams.run([SMALL], sweep=(0, 5)), "sweep"),
        (lambda: gigabar.streams.run([SMALL], sweep=(1, 5, 1)), "sweep"),
        (lambda: gigabar.streams.run([SMALL], link=0), "link"),
        (lambda: gigabar.streams.run(["gpu0->host bytes=64K"], plain=True), "plain"),  # stand-ins
        (lambda: gigabar.streams.run_presets([]), "names"),
        (lambda: gigabar.streams.run_presets(["list"]), "names"),
        (lambda: gigabar.streams.run_presets(["nvlink"]), "names"),
        (lambda: gigabar.streams.run_presets(["device_local_copy"], nbytes=0), "nbytes"),
        (lambda: gigabar.streams.run([SMALL], repeat_timeout=0), "repeat_timeout"),
    ],
)
def test_a_bad_argument_is_named(call: Callable[[], object], names: str) -> None:
    with pytest.raises(gigabar.Error) as raised:
        call()
    assert (raised.value.status, raised.value.object) == ("invalid_argument", names), raised.value
    assert raised.value.operation and raised.value.cause and names in str(raised.value)
    assert not raised.value.cause.startswith("-")


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: gigabar.topology(7), "machine"),  # type: ignore[arg-type]
        (lambda: gigabar.doctor(only="pci"), "only"),
        (lambda: gigabar.doctor(timeout=None), "timeout"),  # type: ignore[arg-type]
        (lambda: gigabar.survey(budget="1"), "budget"),  # type: ignore[arg-type]
        (lambda: gigabar.compare(7, "file"), "first"),  # type: ignore[arg-type]
        (lambda: gigabar.streams.run(SMALL), "transfers"),
        (lambda: gigabar.streams.run([7]), "transfers"),  # type: ignore[list-item]
        (lambda: gigabar.streams.run([SMALL], repeats=True), "repeats"),
    ],
)
def test_a_wrong_type_is_named(call: Callable[[], object], names: str) -> None:
    with pytest.raises(TypeError, match=names):
        call()


def test_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIGABAR_STAND_IN", "many")
    with pytest.raises(gigabar.Error, match="GIGABAR_STAND_IN") as raised:
        gigabar.streams.run([SMALL])
    assert raised.value.status != "timed_out" and raised.value.remedy


# --- A program that does not do what it should.


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a script in Python as the program."""

    def replace(script: str) -> None:
        path = tmp_path / "program"
        path.write_text(f"#!{sys.executable}\nimport os, signal, sys\nsignal.alarm(60)\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(gigabar._command, "PATH", path)

    return replace


def test_members_of_a_later_program_are_kept(program: Callable[[str], None], tmp_path: Path) -> None:
    later = gigabar.topology().to_dict()
    later["later"] = {"list": [1, None]}
    later["results"][0]["numa_nodes"][0]["later"] = "text"
    (tmp_path / "document").write_text(json.dumps(later))
    program(f"sys.stdout.write(open({str(tmp_path / 'document')!r}).read())")
    found = gigabar.topology()
    assert found.to_dict() == later and found.topology.numa_nodes[0].to_dict()["later"] == "text"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document.pop("origin"), "document.origin is missing"),
        (lambda document: document["machine"].update(cores=True), "document.machine.cores"),
        (lambda document: document["results"][0].update(gpus=[7]), r"gpus\[0\] is no object"),
    ],
)
def test_an_unreadable_document_is_an_error(
    program: Callable[[str], None], tmp_path: Path, change: Callable[[Any], object], says: str
) -> None:
    document = gigabar.topology().to_dict()
    change(document)
    (tmp_path / "document").write_text(json.dumps(document))
    program(f"sys.stdout.write(open({str(tmp_path / 'document')!r}).read())")
    with pytest.raises(gigabar.Error, match=says) as raised:
        gigabar.topology()
    assert raised.value.status == "bad_file"


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        ("print('{')", "bad_file", "cannot be read"),
        ("print('[' * 100000)", "bad_file", "cannot be read"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "unavailable", "signal 9"),
        ("sys.exit(5)", "unavailable", "status 5"),
        ("sys.exit('gigabar topology: load hwloc: it is missing; install it')", "unavailable", "load hwloc: it is missing; install it"),
    ],
)
def test_a_program_that_fails(program: Callable[[str], None], script: str, status: str, says: str) -> None:
    program(script)
    with pytest.raises(gigabar.Error, match=says) as raised:
        gigabar.topology()
    assert raised.value.status == status and raised.value.operation == "topology"


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gigabar._command, "PATH", Path("/no/such/program"))
    with pytest.raises(gigabar.Error, match="/no/such/program") as raised:
        gigabar.topology()
    assert raised.value.status == "unavailable"


def test_a_deadline_ends_the_program() -> None:
    with pytest.raises(gigabar.TimedOut) as raised:
        gigabar.streams.run(["gpu0->gpu1 ce bytes=1M seconds=100"], timeout=0.2)
    assert raised.value.status == "timed_out" and raised.value.object == "timeout"
    with pytest.raises(ChildProcessError):  # nothing is left of it
        os.waitpid(-1, os.WNOHANG)


def test_a_deadline_ends_a_program_that_does_not_obey(program: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gigabar._command, "GRACE_SECONDS", 0.05)
    program("signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: signal.pause()")
    with pytest.raises(gigabar.TimedOut):
        gigabar.topology(timeout=0.2)


INTERRUPTED = """
import gigabar, gigabar._command, pathlib, sys, threading
gigabar._command.PATH = pathlib.Path(sys.argv[1])
def tell():
    open(sys.argv[2]).close()
    print("ready", flush=True)  # this thread runs while the other waits
threading.Thread(target=tell, daemon=True).start()
try:
    gigabar.topology(timeout=30)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_is_passed_on_once_and_other_threads_run(program: Callable[[str], None], tmp_path: Path) -> None:
    ready, said = tmp_path / "ready", tmp_path / "said"
    os.mkfifo(ready)
    program(
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        f"open({str(ready)!r}, 'w').close()\n"
        "signal.sigwait([signal.SIGINT])\n"
        "again = signal.sigtimedwait([signal.SIGINT], 0.3)\n"
        f"open({str(said)!r}, 'w').write('twice' if again else 'once')"
    )
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "program"), str(ready)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as caller:
        try:
            assert caller.stdout is not None and caller.stdout.readline() == "ready\n"
            os.killpg(caller.pid, signal.SIGINT)  # as a terminal does
            assert caller.communicate(timeout=30)[0] == "interrupted\n"
        finally:
            caller.kill()
    assert said.read_text() == "once"
