"""Arguments and results as JSON: checked when they are handed in, converted back when the handler runs.

- What is accepted comes back. What JSON would change or lose (NaN, a lone surrogate, a key that is not a string, a
  time without a zone, the fields of a subclass) is refused with `Invalid`, and nothing is stored.
- Checking is strict: no string becomes a number and no number a flag. What JSON carries for a type is accepted for it
  (an enum's value, a moment's text, a mapping for a dataclass), because other languages enqueue too.
- Nothing here does I/O, and nothing is pickled.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, Self, get_type_hints
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import Invalid, backticked, quoted, with_short_quotes
from holdfast.jobs.schema import Flaw, Schema, Writer, object_schema, shown, violations

MAX_BYTES = 1024 * 1024
DEEPEST = 100  # levels of lists and objects that are accepted
READ_DEPTH = 150  # levels that are read: what is accepted may stand in something of ours
CUT = '"[nested too deeply]"'

TIMES = (datetime, date, time, timedelta)
ATOMS = (type(None), bool, int, float, Decimal, str, UUID, bytes, bytearray, memoryview, *TIMES)
ARRAYS = (list, tuple, set, frozenset)
UNFIT = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
MISFIT = (TypeError, UnicodeError, RecursionError, msgspec.MsgspecError)
# Formats in which msgspec reads a text whose value is refused here: without a zone, or not finite.
OTHER_VALUE = re.compile(r"(Invalid (?:enum )?value) .*", re.DOTALL)
LOOK_AGAIN = {"date-time", "time", "decimal"}

_brackets = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_encoder = msgspec.json.Encoder()
_sorting_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder()
_raw_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Mismatch(Invalid):
    """A stored payload that does not fit its handler's annotations; trying again would not help."""


class Refused(Exception):
    """Carries a flaw to the public function, which knows whose value it is."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.flaw = Flaw(path, problem)

    def about(self, owner: str, whole: str, part: str) -> str:
        """The flaw as a sentence. Escaped, because a name in it may be text that cannot be printed or sent."""
        path, problem = self.flaw
        subject = f"{part} {backticked(path.removeprefix('.'))}" if path else whole
        return f"{owner}{subject} {problem}.".encode("utf-8", "backslashreplace").decode()


def dump(value: Any, *, what: str, limit: int = MAX_BYTES) -> str:
    """The JSON text of a value. Raises Invalid, naming `what` and the place in it, where JSON cannot carry it."""
    try:
        return _encode(value, limit)[0].decode()
    except Refused as refused:
        raise Invalid(refused.about("", what, f"{what} at")) from None


def dump_each(values: Sequence[Any], what: Callable[[int], str]) -> list[msgspec.Raw]:
    """The JSON of each; Invalid for the first that JSON cannot carry, named by its place among them."""
    with suppress(Refused):
        _encode(values, MAX_BYTES)  # looked through together: all fit where the whole does
        return [msgspec.Raw(_encoder.encode(value)) for value in values]
    return [msgspec.Raw(dump(value, what=what(at)).encode()) for at, value in enumerate(values)]


def load(text: str) -> Any:
    """The plain value of a JSON text. What is nested deeper than whoever shows it could follow has words in its place."""
    try:
        value = _decoder.decode(text)
        if not _is_deep(text, value, READ_DEPTH):
            return value
    except RecursionError:
        pass
    return _decoder.decode(_cut(text, READ_DEPTH))


def check_by_schema(schema: Schema | None, payload: dict[str, Any], *, job_type: str, limit: int = MAX_BYTES) -> str:
    """The JSON text of a payload, checked against the schema that `Signature.schema` gave; None: anything goes.

    Raises Invalid naming the job type and the argument."""
    try:
        if not isinstance(payload, dict):
            raise Refused("", f"must be a JSON object of named arguments, got {shown(payload)}")
        raw, plain, _ = _encode(payload, limit)
        if schema is not None:
            if schema.get("additionalProperties") is False:
                _refuse_unknown(plain, schema.get("properties", {}))
            for flaw in violations(schema, plain, schema.get("$defs", {})):
                raise Refused(*flaw)
    except Refused as refused:
        raise Invalid(refused.about(f"{job_type}: ", "the payload", "argument") + " Nothing was stored.") from None
    return raw.decode()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signature:
    """The arguments that a function takes, as they are checked, stored and given back."""

    name: str
    positional: tuple[str, ...]
    required: tuple[str, ...]
    _needed: frozenset[str]
    _types: dict[str, Any]
    _decoder: msgspec.json.Decoder[Any]
    _others: msgspec.json.Decoder[Any] | None
    _all_required: bool
    _settled: frozenset[str]
    _look_again: bool
    _short: bool  # what is read is what is given
    _schema: bytes
    _secrets: frozenset[str]

    @classmethod
    def of(cls, function: Callable[..., Any], *, skip: int = 0, secrets: Collection[str] = ()) -> Self:
        """Read a function's parameters, without the first `skip`. Raises Invalid for one that no payload can fill.

        Errors about arguments that are `secrets` do not show their values."""
        name, _ = _definition(function)
        parameters = _parameters(function, skip)
        types = {parameter.name: _annotation(function, parameter) for parameter in parameters}
        writer = Writer()
        written = {argument: _written(writer, name, argument, types[argument]) for argument in types}
        last = parameters[-1].name if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else None
        others = types.pop(last) if last else None
        other_schema = written.pop(last) if last else False
        required = [p.name for p in parameters if p.name in types and p.default is inspect.Parameter.empty]
        schema = {"title": name, **object_schema(written, required, other_schema), "$defs": writer.defs}
        return cls(
            name=name,
            positional=tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD),
            required=tuple(required),
            _needed=frozenset(required),
            _types=types,
            _decoder=msgspec.json.Decoder(_arguments_type(types, required, closed=last is None)),
            _others=msgspec.json.Decoder(others) if last else None,
            _all_required=len(required) == len(types),
            _settled=frozenset(argument for argument in types if not _may_be_refused(types[argument])),
            _look_again=(look_again := not LOOK_AGAIN.isdisjoint(writer.formats)),
            _short=last is None and len(required) == len(types) and not look_again,
            _schema=_encoder.encode(schema),
            _secrets=frozenset(secrets),
        )

    def hiding(self, secrets: Collection[str]) -> Self:
        """The same; its errors do not show the values of these arguments."""
        return replace(self, _secrets=frozenset(secrets))

    def schema(self) -> Schema:
        """The JSON schema of the arguments: self-contained, the same for the same code, for `check_by_schema`."""
        schema: Schema = _decoder.decode(self._schema)
        return schema

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit: int = MAX_BYTES) -> str:
        """The JSON text of the given arguments; defaults stay out. Raises Invalid naming the function and argument."""
        return self._plain_text(args, kwargs, limit) or self._checked(args, kwargs, limit)

    def _plain_text(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str | None:
        """The short way for what is JSON already and fits; None leaves the word to `_checked`."""
        names = kwargs.keys()
        if args or self._look_again or self._others is not None or not self._needed <= names <= self._types.keys():
            return None
        try:
            raw = _encoder.encode(kwargs)
            if len(raw) > limit or _decoder.decode(raw) != kwargs:
                return None
            self._decoder.decode(raw)
        except UNFIT:
            return None
        text = raw.decode()
        return None if _is_deep(text, kwargs, DEEPEST) else text

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any], limit: int) -> str:
        given: dict[str, Any] = {}
        try:
            given = self._bind(args, kwargs)
            raw, _, is_plain = _encode(given, limit)
            if not is_plain:
                self._refuse_lossy(given)
            self._accepted(self._read(text := raw.decode()))
        except Refused as refused:
            raise self._invalid(refused) from None
        except MISFIT as error:
            raise self._invalid(self._refused(error, given)) from None
        return text

    def convert(self, text: str) -> dict[str, Any]:
        """The keyword arguments that a stored payload stands for. Raises Mismatch, naming the argument."""
        try:
            if self._short:
                return msgspec.structs.asdict(self._decoder.decode(text))
            return self._accepted(self._read(text))
        except Refused as refused:
            raise self._mismatch(refused) from None
        except UNFIT as error:
            raise self._mismatch(self._refused(error, _loaded(text))) from error

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.positional):
            problem = f"gives {len(args)} arguments by position where {len(self.positional)} are taken"
            raise Refused("", f"{problem}; pass the others by name")
        given = dict(zip(self.positional, args, strict=False))
        for name in given:
            if name in kwargs:
                raise Refused(f".{name}", "is given twice, by position and by name; pass it once")
        given.update(kwargs)
        if self._others is None:
            _refuse_unknown(given, self._types)
        for name in self.required:
            if name not in given:
                raise Refused(f".{name}", "is missing; pass it, or give the parameter a default")
        return given

    def _refuse_lossy(self, given: dict[str, Any]) -> None:
        """Refuse what JSON would carry as another type, or short of a subclass's fields."""
        typed = self._typed(given)
        try:
            text = _sorting_encoder.encode(typed).decode()
            back = _sorting_encoder.encode(self._read(text)).decode()
        except TypeError:
            return  # A set whose members have no order cannot be compared as text.
        before, after = load(text), load(back)
        for name in before:
            if before[name] != after[name]:
                raise Refused(f".{name}", "would come back changed; pass exactly the annotated types, no subclasses")

    def _typed(self, given: dict[str, Any]) -> dict[str, Any]:
        named = {name: given[name] for name in given if name in self._types}
        try:
            typed = self._named(msgspec.convert(named, self._decoder.type))
        except msgspec.ValidationError:
            typed = {name: _under(name, partial(_fitted, self._types[name]), named[name]) for name in named}
        if self._others is not None:
            to_other = partial(_fitted, self._others.type)
            typed.update({name: _under(name, to_other, given[name]) for name in given if name not in self._types})
        return typed

    def _read(self, text: str) -> dict[str, Any]:
        given = self._named(self._decoder.decode(text))
        if self._others is not None:
            raw = _raw_decoder.decode(text)
            given.update(
                {name: _under(name, self._others.decode, raw[name]) for name in raw if name not in self._types}
            )
        return given

    def _named(self, arguments: msgspec.Struct) -> dict[str, Any]:
        given = msgspec.structs.asdict(arguments)
        return given if self._all_required else {name: given[name] for name in given if given[name] is not UNSET}

    def _accepted(self, given: dict[str, Any]) -> dict[str, Any]:
        if self._look_again:
            for name in given:
                if name not in self._settled and (flaw := next(_flaws(given[name], f".{name}"), None)):
                    raise Refused(*flaw)
        return given

    def _refused(self, error: Exception, given: Any) -> Refused:
        """msgspec's error in our words, with the value where it is an argument itself."""
        path, message = _parted(error)
        if lacking := re.fullmatch(r"Object (missing required|contains unknown) field (.*)", message):
            return Refused(f"{path}.{lacking[2]}", "is missing" if "missing" in lacking[1] else "is unknown")
        wanted, _, got = message.removeprefix("Expected ").partition(", got ")
        problem = (
            f"must be {wanted}" if message.startswith("Expected ") else f"is not accepted: {with_short_quotes(message)}"
        )
        name = path.removeprefix(".")
        whole = isinstance(given, dict) and name in given
        if whole or re.split(r"[.\[]", name)[0] in self._secrets:
            problem = OTHER_VALUE.sub(r"\1", problem)
        if whole:
            annotation = self._types.get(name)
            if wanted == "object" and isinstance(annotation, type):
                problem = f"must be {annotation.__name__}"
            got = type(given[name]).__name__ if name in self._secrets else shown(given[name])
        return Refused(path, f"{problem}, got {got}" if got else problem)

    def _invalid(self, refused: Refused) -> Invalid:
        return Invalid(refused.about(f"{self.name}: ", "the payload", "argument") + " Nothing was stored.")

    def _mismatch(self, refused: Refused) -> Mismatch:
        said = refused.about(f"{self.name}: ", "the stored payload", "stored argument")
        return Mismatch(f"{said} It does not fit the handler any more; enqueue the job again with arguments that do.")


def _encode(value: Any, limit: int) -> tuple[bytes, Any, bool]:
    """The JSON of a value, what it reads as, and whether that is the value itself. Raises Refused."""
    try:
        raw = _encoder.encode(value)
        plain = _decoder.decode(raw)
        # Equal after the way there and back: only JSON's own types and nothing lost, so there is nothing to look for.
        is_plain = bool(plain == value)
        flaw = None if is_plain else next(_flaws(value), None)
    except UNFIT as error:
        raise Refused(*_flaw_behind(error, value)) from None
    if flaw is not None:
        raise Refused(*flaw)
    if len(raw) > limit:
        problem = f"takes {len(raw):,} bytes as JSON, which is above the limit of {limit:,}"
        raise Refused("", f"{problem}; store the bulk elsewhere and pass where it is")
    if _is_deep(raw.decode(), plain, DEEPEST):
        raise Refused("", f"is nested too deeply, in more than {DEEPEST} levels; pass something flatter")
    return raw, plain, is_plain


def _is_deep(text: str, value: Any, most: int) -> bool:
    """Whether a JSON text with this value has more levels. Few brackets make no depth, and that is nearly every text."""
    if text.count("[") + text.count("{") <= most:
        return False
    level = [value]
    for _ in range(most):
        level = [each for part in level for each in _parts(part)]
    return any(isinstance(part, dict | list) for part in level)


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if type(value) is dict else value if type(value) is list else ()


def _cut(text: str, most: int) -> str:
    """The JSON text with words for what stands below so many levels. It goes by brackets: nothing can be too deep for it."""
    depth = end = 0
    kept: list[str] = []
    for found in _brackets.finditer(text):
        if found[0] in ("[", "{"):
            depth += 1
            if depth == most + 1:
                kept += text[end : found.start()], CUT
        elif found[0] in ("]", "}"):
            depth -= 1
            if depth == most:
                end = found.end()
    return "".join((*kept, text[end:]))


def _flaw_behind(error: Exception, value: Any) -> Flaw:
    try:
        return next(_flaws(value), None) or Flaw("", f"has no JSON form: {error}")
    except RecursionError:
        return Flaw("", "is nested too deeply or contains itself; pass something flatter")


def _flaws(value: Any, path: str = "") -> Iterator[Flaw]:
    """What in a value JSON cannot carry faithfully."""
    if type(value) in ATOMS:
        if problem := _problem(value):
            yield Flaw(path, problem)
    elif isinstance(value, dict):
        yield from _key_flaws(value, path)
        for key, item in value.items():
            yield from _flaws(item, f"{path}.{key.value if isinstance(key, Enum) else key}")
    elif isinstance(value, ARRAYS):
        for index, item in enumerate(value):
            yield from _flaws(item, f"{path}[{index}]")
    else:
        try:
            parts = msgspec.to_builtins(value, builtin_types=ATOMS)
        except (TypeError, AttributeError):
            cure = "pass JSON types, a dataclass or a msgspec.Struct"
            yield Flaw(path, f"has no JSON form, got {type(value).__name__}; {cure}")
        else:
            yield from _flaws(parts, path)


def _key_flaws(value: dict[Any, Any], path: str) -> Iterator[Flaw]:
    names = [key.value if isinstance(key, Enum) else key for key in value]
    for name in names:
        if not isinstance(name, str):
            yield Flaw(path, f"has the key {quoted(name)}, and JSON keys are strings; make it a str")
        elif problem := _problem(name):
            yield Flaw(path, f"has the key {quoted(name)}, which {problem}")
    if len(set(names)) < len(names):
        yield Flaw(path, "has two keys that are one and the same in JSON; drop one of them")


def _problem(value: Any) -> str | None:
    match value:
        case float() if not math.isfinite(value):
            return f"is {value}, which JSON cannot carry; pass a finite number or None"
        case Decimal() if not value.is_finite():
            return f"is {value}, which is not a number to compute with; pass a finite number or None"
        case str() if not _is_written(value):
            return "holds a lone surrogate, which UTF-8 cannot carry; pass proper text, or bytes"
        case datetime() | time() if value.utcoffset() is None:
            return f"is a {type(value).__name__} without a time zone; give it one, for example tzinfo=UTC"
        case datetime() | time() if (value.utcoffset() or timedelta()) % timedelta(minutes=1):
            return "has an offset from UTC that is not whole minutes; pass it in UTC"
        case int() if not _is_written(value):
            return "is an integer of more digits than Python writes or reads; pass it as a str"
    return None


def _fitted(annotation: Any, value: Any) -> Any:
    """A value as its annotation has it. Of an enum with numbers msgspec takes the number and not the member."""
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        plain = _by_value(value)
        if plain == value:
            raise
        typed = msgspec.convert(plain, annotation)
    for path, member, found in _members(value, typed):
        if found != member:
            wanted = type(found).__name__
            raise msgspec.ValidationError(f"Expected {wanted}, got {type(member).__name__} - at `${path}`")
    return typed


def _by_value(value: Any) -> Any:
    """With its number for each member of an enum that has numbers and is none itself; flags are among them."""
    if isinstance(value, Enum) and not isinstance(value, int | str):
        return value.value
    if type(value) is dict:
        return {key: _by_value(item) for key, item in value.items()}
    return type(value)(map(_by_value, value)) if type(value) in ARRAYS else value


def _members(given: Any, typed: Any, path: str = "") -> Iterator[tuple[str, Enum, Any]]:
    """Each member of an enum in what was given, where it stands, and what stands there by its annotation."""
    if isinstance(given, Enum):
        yield path, given, typed
    elif type(given) is dict:
        for key, item in given.items():
            found = typed.get(key, item) if isinstance(typed, dict) else getattr(typed, str(key), item)
            yield from _members(item, found, f"{path}.{key}")
    elif type(given) in (set, frozenset):
        for item in given:
            yield from _members(item, item if item in typed else next(iter(typed)), f"{path}[...]")
    elif type(given) in ARRAYS and isinstance(typed, list | tuple):
        for index, (item, found) in enumerate(zip(given, typed, strict=False)):
            yield from _members(item, found, f"{path}[{index}]")


def _is_written(value: str | int) -> bool:
    try:
        _encoder.encode(value)
    except ValueError:
        return False
    return True


def _refuse_unknown(given: Iterable[Any], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"is unknown; did you mean `{near[0]}`?" if near else "is unknown."
            listed = ", ".join(f"`{each}`" for each in known) or "none at all"
            raise Refused(f".{name}", f"{hint} The arguments are {listed}")


def _parted(error: Exception) -> tuple[str, str]:
    """The path and the message of a msgspec error, which writes `message - at `$.path``."""
    parts = re.fullmatch(r"(.*) - at (?:`key` in )?`\$(.*)`", str(error), re.DOTALL)
    path, message = (parts[2], parts[1]) if parts else ("", str(error))
    return path, message.replace("`", "")


def _under(name: str, read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except msgspec.ValidationError as error:
        path, message = _parted(error)
        raise msgspec.ValidationError(f"{message} - at `$.{name}{path}`") from None


def _loaded(text: str) -> Any:
    try:
        return load(text)
    except UNFIT:
        return None


def called(function: Any) -> Any:
    """What a handler is called as: of an object with `async def __call__` that method, which shows that it is awaited."""
    if (
        inspect.isroutine(function)
        or inspect.isclass(function)
        or not inspect.iscoroutinefunction(type(function).__call__)
    ):
        return function
    return function.__call__


def _definition(function: Any) -> tuple[str, Any]:
    """A callable's name, and the function that its annotations were written on."""
    function = inspect.unwrap(function)
    while isinstance(function, partial):
        function = inspect.unwrap(function.func)
    if inspect.isclass(function):
        return function.__name__, function.__init__
    if inspect.isroutine(function):
        return function.__name__, function
    return type(function).__name__, type(function).__call__


def _parameters(function: Callable[..., Any], skip: int) -> list[inspect.Parameter]:
    name, _ = _definition(function)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise Invalid(f"{name}: its parameters cannot be read ({error}). Wrap it in a plain function.") from None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < skip:
        raise Invalid(f"{name}: it is called with {skip} arguments before the payload's. Add parameters for them.")
    for parameter in parameters[skip:]:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            cure = "Take a list instead" if parameter.kind is parameter.VAR_POSITIONAL else "Remove the `/` behind it"
            raise Invalid(f"{name}: parameter `{parameter}` has no name in a payload. {cure}.")
    return parameters[skip:]


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's type. Read one by one, so that what no payload fills (a return type) need not resolve."""
    if parameter.annotation is parameter.empty:
        return Any
    name, definition = _definition(function)
    alone = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    try:
        hints = get_type_hints(alone, getattr(definition, "__globals__", {}), include_extras=True)
    except Exception as error:  # An annotation is code of the user's, and may raise anything.
        problem = (
            f"the annotation {quoted(parameter.annotation)} of parameter `{parameter.name}` does not resolve ({error})"
        )
        raise Invalid(f"{name}: {problem}. Define or import the type at the top of the handler's module.") from None
    return hints[parameter.name]


def _written(writer: Writer, name: str, argument: str, annotation: Any) -> Schema:
    try:
        return writer.write(annotation)
    except (TypeError, NameError) as error:
        problem = f"parameter `{argument}` cannot be filled from JSON: {error}"
        raise Invalid(f"{name}: {problem}. Annotate it with JSON types, a dataclass or a msgspec.Struct.") from None


def _may_be_refused(annotation: Any) -> bool:
    writer = Writer()
    writer.write(annotation)
    return not LOOK_AGAIN.isdisjoint(writer.formats)


def _arguments_type(types: dict[str, Any], required: list[str], *, closed: bool) -> type[msgspec.Struct]:
    fields = [
        (name, annotation) if name in required else (name, annotation | UnsetType, UNSET)
        for name, annotation in types.items()
    ]
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=closed)


def storable(text: str) -> str:
    """Text that every database takes: whole characters, and no NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
