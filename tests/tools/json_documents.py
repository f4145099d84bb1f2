# SPDX-License-Identifier: Apache-2.0
"""Checks a document of `gigabar` against its JSON Schema in docs/schema: that of the command that wrote it."""

import functools
import json
import pathlib

import jsonschema

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schema"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def paths():
    """Of the schemas of documents."""
    return sorted(path for path in FOLDER.glob("*.schema.json") if path.name != "common.schema.json")


def local(schema):
    """With the references to the common file as those to definitions of its own, so that no file has to be looked up."""
    if isinstance(schema, dict):
        return {key: value.replace("common.schema.json", "") if key == "$ref" else local(value) for key, value in schema.items()}
    return [local(each) for each in schema] if isinstance(schema, list) else schema


@functools.cache
def validators():
    """By command."""
    common = local(read(FOLDER / "common.schema.json"))["$defs"]
    found = {}
    for path in paths():
        schema = local(read(path))
        schema["$defs"] = {**common, **schema.get("$defs", {})}
        jsonschema.Draft202012Validator.check_schema(schema)
        tool = schema["properties"]["tool"]
        for name in tool.get("enum", [tool.get("const")]):
            found[name] = jsonschema.Draft202012Validator(schema)
    return found


def cause(error):
    """Of alternatives, none of which fits, what is wrong with the nearest one."""
    while error.context:
        branches = {}
        for each in error.context:
            branches.setdefault(each.schema_path[0], []).append(each)
        error = min(branches.values(), key=len)[0]
    return error


def problems(document):
    """What is wrong with it, a line each; nothing when it is as its schema says."""
    validator = validators().get(document.get("tool"))
    if validator is None:
        return [f"no schema for '{document.get('tool')}'"]
    causes = [cause(error) for error in validator.iter_errors(document)]
    return [f"{'/'.join(str(part) for part in each.absolute_path)}: {each.message[:300]}" for each in causes]
