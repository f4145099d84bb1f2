#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""documents_test.py LIBRARY: whether the JSON texts of libgigabar.so.1 are as docs/schema/common.schema.json says. Calls the library as another
language's binding does: by its symbols, without a header.

exit code: 0 all are; 1 otherwise."""

import ctypes
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "tools"))

import json_documents  # noqa: E402
import jsonschema  # noqa: E402

LOCAL_PLACE = type("LocalPlace", (ctypes.Structure,), {"_fields_": [("offset_bytes", ctypes.c_uint64), ("segment", ctypes.c_uint16)]})
REMOTE_PLACE = type("RemotePlace", (ctypes.Structure,),
                    {"_fields_": [("offset_bytes", ctypes.c_uint64), ("rank", ctypes.c_uint32), ("segment", ctypes.c_uint16)]})
PATIENCE_NS = 20 * 10**9

os.environ.update(GIGABAR_STAND_IN="1", GIGABAR_TRANSPORTS="local")
library = ctypes.CDLL(sys.argv[1])
library.gigabar_last_error_message.restype = ctypes.c_char_p
definitions = json_documents.local(json_documents.read(json_documents.FOLDER / "common.schema.json"))["$defs"]
faults, checked = [], []


def succeed(status):
    if status != 0:
        sys.exit(f"failed: {library.gigabar_last_error_message().decode()}")


def check(name, call, *arguments):
    """Calls a function whose last argument is the text, and compares that with the definition `name`."""
    text = ctypes.c_char_p()
    succeed(call(*arguments, ctypes.byref(text)))
    document = json.loads(text.value.decode("utf-8"))
    library.gigabar_text_free(text)
    schema = {**definitions[name], "$defs": definitions}
    faults.extend(f"{name}: {error.json_path}: {error.message[:200]}" for error in jsonschema.Draft202012Validator(schema).iter_errors(document))
    checked.append(name)
    # A definition that allows everything would be none.
    if not list(jsonschema.Draft202012Validator(schema).iter_errors({**document, "unknown": 1})):
        faults.append(f"{name}: has a member that no schema names, and passes")


for machine in (None, *sorted((ROOT / "tests" / "sysroots" / "captured").glob("*.json"))):
    path = machine and str(machine).encode()
    check("availability_report", library.gigabar_availability_json, path)
    check("topology", library.gigabar_topology_json, path)
check("doctor_report", library.gigabar_doctor_json, None)

memory, mapping, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
succeed(library.gigabar_memory_allocate(0, ctypes.c_size_t(4096), 0, ctypes.byref(memory)))
succeed(library.gigabar_memory_address(memory, ctypes.byref(address)))
succeed(library.gigabar_map(address, ctypes.c_size_t(4096), None, ctypes.byref(mapping)))
check("mapping", library.gigabar_mapping_json, mapping)
succeed(library.gigabar_unmap(mapping))
succeed(library.gigabar_memory_free(memory))

if hasattr(library, "gigabar_fabric_open"):
    fabric, words = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
    succeed(library.gigabar_fabric_open(None, ctypes.byref(fabric)))
    succeed(library.gigabar_segment_register(fabric, 1, words, ctypes.c_uint64(4096)))
    for explain in (library.gigabar_fabric_explain_write, library.gigabar_fabric_explain_read):
        check("explanation", explain, fabric, LOCAL_PLACE(0, 1), REMOTE_PLACE(8, 0, 1), ctypes.c_uint64(8), ctypes.c_int64(PATIENCE_NS), None)
    check("fabric_report", library.gigabar_fabric_json, fabric)
    succeed(library.gigabar_segment_deregister(fabric, 1, ctypes.c_int64(PATIENCE_NS)))
    succeed(library.gigabar_fabric_close(fabric, ctypes.c_int64(PATIENCE_NS)))

print("\n".join(faults) or f"{len(checked)} documents of {len(set(checked))} kinds are as their schema says")
sys.exit(1 if faults else 0)
