"""The JSON schema of a handler's arguments: written where the code is, checked against where it is not.

- `Writer` writes what `msgspec.json.schema` writes, and says more where that lets through what would not convert:
  moments carry their format, keys their choices. What cannot be read back from JSON is refused with `TypeError`.
- `violations` knows the keywords that are written here and ignores others, as JSON schema asks.
"""

import math
import operator
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Flag, FlagBoundary
from functools import reduce
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import inspect

from holdfast.errors import quoted

Schema = dict[str, Any]
MOST_BITS = 6  # of flags whose every sum is listed

SIMPLE: dict[type[inspect.Type], Schema] = {
    inspect.AnyType: {},
    inspect.NoneType: {"type": "null"},
    inspect.BoolType: {"type": "boolean"},
    inspect.IntType: {"type": "integer"},
    inspect.FloatType: {"type": "number"},
    inspect.StrType: {"type": "string"},
    inspect.DateTimeType: {"type": "string", "format": "date-time"},
    inspect.DateType: {"type": "string", "format": "date"},
    inspect.TimeType: {"type": "string", "format": "time"},
    inspect.TimeDeltaType: {"type": "string", "format": "duration"},
    inspect.UUIDType: {"type": "string", "format": "uuid"},
    inspect.DecimalType: {"type": ["string", "number"], "format": "decimal"},
}

BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
}

# msgspec itself reads the strings, so that a string which passes here converts there.
FORMATS: dict[str, tuple[Any, str]] = {
    "date-time": (Annotated[datetime, msgspec.Meta(tz=True)], "a date-time with its zone, like 2026-01-31T12:00:00Z"),
    "date": (date, "a date, like 2026-01-31"),
    "time": (Annotated[time, msgspec.Meta(tz=True)], "a time with its zone, like 12:00:00Z"),
    "duration": (timedelta, "a duration, like PT90S"),
    "uuid": (UUID, "a UUID"),
    "decimal": (Decimal, "a finite decimal number, like 12.50"),
    "base64": (bytes, "bytes in base64"),
    "byte": (bytes, "bytes in base64"),
}

LIMITS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "above"),
    "maximum": (operator.le, "at most"),
    "exclusiveMaximum": (operator.lt, "below"),
    "multipleOf": (lambda value, step: math.fmod(value, step) == 0, "a multiple of"),
}

KINDS: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


class Flaw(NamedTuple):
    """What is wrong with a value, and where in it: `path` is empty for the value itself, else like `.user.tags[2]`."""

    path: str
    problem: str


class Writer:
    """Writes schemas that share their named parts, `defs`; `formats` collects the formats that occur in them."""

    def __init__(self) -> None:
        self.defs: dict[str, Schema] = {}
        self.formats: set[str] = set()
        self._names: dict[Any, str] = {}

    def write(self, annotation: Any) -> Schema:
        """The schema of one annotation. Raises TypeError for a type that cannot be read back from JSON."""
        return self._schema(inspect.type_info(annotation))

    def _schema(self, info: Any) -> Schema:
        match info:
            case inspect.Metadata():
                return {**(info.extra_json_schema or {}), **self._schema(info.type)}
            case inspect.UnionType():
                # Sorted, because `typing` may hand out an equal union that was written in another order.
                return {"anyOf": sorted((self._schema(option) for option in info.types), key=msgspec.json.encode)}
            case inspect.LiteralType():
                return {"enum": list(info.values)}
            case inspect.DictType():
                names = {"propertyNames": names} if (names := _keys(info.key_type)) else {}
                values = self._schema(info.value_type)
                return {"type": "object", **names, "additionalProperties": values, **_bounds(info, "Properties")}
            case inspect.TupleType():
                return _array([self._schema(item) for item in info.item_types], len(info.item_types), closed=True)
            case inspect.CollectionType():
                return {"type": "array", "items": self._schema(info.item_type), **_bounds(info, "Items")}
            case inspect.BytesType() | inspect.ByteArrayType() | inspect.MemoryViewType():
                lengths = {keyword: 4 * ((size + 2) // 3) for keyword, size in _bounds(info, "Length").items()}
                return {"type": "string", "contentEncoding": "base64", **lengths}
            case _ if type(info) in SIMPLE:
                return self._simple(info)
            case inspect.EnumType() | inspect.NamedTupleType():
                return {"$ref": f"#/$defs/{self._define(info)}"}
            case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType():
                return {"$ref": f"#/$defs/{self._define(info)}"}
        raise TypeError(f"{_name(info)} cannot be read back from JSON")

    def _simple(self, info: Any) -> Schema:
        if getattr(info, "tz", None) is False:
            raise TypeError("a time without a zone is never accepted; drop tz=False")
        schema = {**SIMPLE[type(info)], **_bounds(info, "Length")}
        self.formats.add(schema.get("format", ""))
        return schema

    def _define(self, info: Any) -> str:
        if info.cls not in self._names:
            plain = re.sub(r"\W", "_", _name(info))
            self._names[info.cls] = name = plain if plain not in self.defs else f"{plain}_{len(self.defs)}"
            self.defs[name] = {}  # The name is taken before the parts are written: a type may contain itself.
            self.defs[name] = {"title": _name(info), **self._named(info)}
        return self._names[info.cls]

    def _named(self, info: Any) -> Schema:
        if isinstance(info, inspect.EnumType):
            return _flags(info.cls) if issubclass(info.cls, Flag) else {"enum": _choices(info)}
        is_tuple = isinstance(info, inspect.NamedTupleType)
        closed = is_tuple or getattr(info, "forbid_unknown_fields", False)
        tag = {info.tag_field: {"enum": [info.tag]}} if getattr(info, "tag_field", None) else {}
        fields = {**tag, **{field.encode_name: self._schema(field.type) for field in info.fields}}
        required = [*tag, *(field.encode_name for field in info.fields if field.required)]
        if is_tuple or getattr(info, "array_like", False):
            return _array(list(fields.values()), len(required), closed)
        return object_schema(fields, required, False if closed else {})


def object_schema(properties: dict[str, Schema], required: list[str], others: Schema | bool) -> Schema:
    """The schema of an object; `others` is what any further property must be."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": others}


def _array(items: list[Schema], required: int, closed: bool) -> Schema:
    bounds = {"minItems": required, "maxItems": len(items)} if closed else {"minItems": required}
    return {"type": "array", "prefixItems": items, **bounds}


def _keys(info: Any) -> Schema:
    match info:
        case inspect.Metadata():
            return _keys(info.type)
        case inspect.AnyType() | inspect.StrType():
            return _bounds(info, "Length")
        case inspect.LiteralType() | inspect.EnumType() if all(isinstance(key, str) for key in _choices(info)):
            return {"enum": _choices(info)}
    raise TypeError("the keys of a JSON object are strings; annotate the keys as str")


def _choices(info: Any) -> list[Any]:
    return list(info.values) if isinstance(info, inspect.LiteralType) else sorted(member.value for member in info.cls)


def _flags(flags: type[Flag]) -> Schema:
    """Any of them together, or none; below zero as Python counts them, from all of them down.

    Numbers in gaps between the bits are told apart where that is no long list."""
    mask = reduce(operator.or_, (member.value for member in flags.__members__.values()), 0)
    if flags._boundary_ is not FlagBoundary.STRICT or mask < 0:  # type: ignore[attr-defined]
        return {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1}  # what msgspec reads as an enum's value
    whole = 1 << mask.bit_length()
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    if mask == whole - 1 or len(bits) > MOST_BITS:
        return {"type": "integer", "minimum": -whole, "maximum": mask}
    sums = reduce(lambda sums, bit: [*sums, *(each | bit for each in sums)], bits, [0])
    return {"enum": [*(each - whole for each in sums), *sums]}


def _bounds(info: Any, measure: str) -> Schema:
    keywords = {**BOUNDS, "min_length": f"min{measure}", "max_length": f"max{measure}"}
    return {word: getattr(info, name) for name, word in keywords.items() if getattr(info, name, None) is not None}


def _name(info: Any) -> str:
    return str(getattr(getattr(info, "cls", None), "__name__", type(info).__name__.removesuffix("Type")))


def violations(schema: Schema | bool, value: Any, defs: dict[str, Schema], path: str = "") -> Iterator[Flaw]:
    """What in `value`, a decoded JSON value, breaks the schema: nothing when it holds."""
    if isinstance(schema, bool):
        if not schema:
            yield Flaw(path, "is not expected here")
        return
    schema = _resolved(schema, defs)
    if not _is_kind(schema, value):
        yield Flaw(path, f"must be {_wanted(schema)}, got {shown(value)}")
        return
    allowed = _allowed(schema)
    if allowed and not any(type(value) is type(choice) and value == choice for choice in allowed):
        yield Flaw(path, f"must be {_wanted(schema)}, got {shown(value)}")
    if "anyOf" in schema:
        yield from _any_of([_resolved(option, defs) for option in schema["anyOf"]], value, defs, path)
    if isinstance(value, dict):
        yield from _in_object(schema, value, defs, path)
    elif isinstance(value, list):
        yield from _in_array(schema, value, defs, path)
    elif isinstance(value, str):
        yield from _in_string(schema, value, path)
    elif isinstance(value, int | float):
        yield from _in_number(schema, value, path)


def _resolved(schema: Schema, defs: dict[str, Schema]) -> Schema:
    return defs[schema["$ref"].removeprefix("#/$defs/")] if "$ref" in schema else schema


def _is_kind(schema: Schema, value: Any) -> bool:
    kinds = schema.get("type", list(KINDS))
    return any(type(value) in KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _allowed(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


def _any_of(options: list[Schema], value: Any, defs: dict[str, Schema], path: str) -> Iterator[Flaw]:
    flaws = [next(violations(option, value, defs, path), None) for option in options]
    if None in flaws:
        return
    # Where the value is of one option's kind only, that is the one it was meant for.
    meant = [flaw for option, flaw in zip(options, flaws, strict=True) if flaw and _is_kind(option, value)]
    wanted = " or ".join(_wanted(option) for option in options)
    yield meant[0] if len(meant) == 1 else Flaw(path, f"must be {wanted}, got {shown(value)}")


def _in_object(schema: Schema, value: Schema, defs: dict[str, Schema], path: str) -> Iterator[Flaw]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            yield Flaw(f"{path}.{name}", "is missing")
    yield from _size(schema, len(value), "Properties", "properties", path)
    for name, item in value.items():
        for flaw in violations(schema.get("propertyNames", True), name, defs):
            yield Flaw(f"{path}.{name}", f"has a key that {flaw.problem}")
        yield from violations(properties.get(name, others), item, defs, f"{path}.{name}")


def _in_array(schema: Schema, value: list[Any], defs: dict[str, Schema], path: str) -> Iterator[Flaw]:
    yield from _size(schema, len(value), "Items", "items", path)
    first = schema.get("prefixItems", [])
    rest = schema.get("items", True)
    for index, item in enumerate(value):
        yield from violations(first[index] if index < len(first) else rest, item, defs, f"{path}[{index}]")


def _in_string(schema: Schema, value: str, path: str) -> Iterator[Flaw]:
    yield from _size(schema, len(value), "Length", "characters", path)
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield Flaw(path, f"must match the pattern {schema['pattern']}, got {shown(value)}")
    kind, words = FORMATS.get(schema.get("contentEncoding") or schema.get("format", ""), (str, ""))
    try:
        read = msgspec.convert(value, kind)
    except msgspec.ValidationError:
        yield Flaw(path, f"must be {words}, got {shown(value)}")
    else:
        if isinstance(read, Decimal) and not read.is_finite():
            yield Flaw(path, f"must be {words}, got {shown(value)}")


def _in_number(schema: Schema, value: float, path: str) -> Iterator[Flaw]:
    for keyword, (holds, words) in LIMITS.items():
        if keyword in schema and not holds(value, schema[keyword]):
            yield Flaw(path, f"must be {words} {schema[keyword]}, got {shown(value)}")


def _size(schema: Schema, size: int, measure: str, words: str, path: str) -> Iterator[Flaw]:
    if size < schema.get(f"min{measure}", 0):
        yield Flaw(path, f"must have at least {schema[f'min{measure}']} {words}, got {size}")
    if size > schema.get(f"max{measure}", size):
        yield Flaw(path, f"must have at most {schema[f'max{measure}']} {words}, got {size}")


def _wanted(schema: Schema) -> str:
    if allowed := _allowed(schema):
        return "one of " + ", ".join(map(repr, allowed))
    kinds = schema.get("type", "something else")
    return str(schema.get("title") or (kinds if isinstance(kinds, str) else " or ".join(kinds)))


def shown(value: Any) -> str:
    """A value as an error shows it: its type, and enough of it to find it."""
    return f"{type(value).__name__} ({quoted(value)})"
