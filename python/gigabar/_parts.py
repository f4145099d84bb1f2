# SPDX-License-Identifier: Apache-2.0
"""Frozen dataclasses of JSON objects."""

import copy
import types
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """An object of a document. Members that its class does not have are in to_dict()."""

    _members: dict[str, Any] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The whole object as the program wrote it: a copy."""
        return copy.deepcopy(self._members)


P = TypeVar("P", bound=Part)


class Unexpected(Exception):
    """A member is missing or has another type. The text names it."""


_known_hints: dict[type[Part], dict[str, Any]] = {}


def _hints(kind: type[Part]) -> dict[str, Any]:
    if kind not in _known_hints:
        _known_hints[kind] = get_type_hints(kind)
    return _known_hints[kind]


def _converted(value: Any, wanted: Any, place: str) -> Any:
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        for one in get_args(wanted):
            try:
                return _converted(value, one, place)
            except Unexpected as error:
                last = error
        raise last
    if wanted is Any:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_converted(one, get_args(wanted)[0], f"{place}[{index}]") for index, one in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {key: _converted(one, get_args(wanted)[1], f"{place}.{key}") for key, one in value.items()}
    if isinstance(wanted, type) and issubclass(wanted, Part):
        return part_of(wanted, value, place)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is None and isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    raise Unexpected(f"{place} is not what this version of the package reads: {str(value)[:60]!r}")


def part_of(kind: type[P], members: Any, place: str) -> P:
    """The object as a dataclass. Raises Unexpected."""
    if not isinstance(members, dict):
        raise Unexpected(f"{place} is no object")
    values: dict[str, Any] = {"_members": members}
    for one in fields(kind):
        if one.name in members and one.name != "_members":
            values[one.name] = _converted(members[one.name], _hints(kind)[one.name], f"{place}.{one.name}")
        elif one.default is MISSING and one.name not in values:
            raise Unexpected(f"{place}.{one.name} is missing")
    return kind(**values)
