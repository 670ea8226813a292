"""Payloads: what JSON carries comes back as it was, and everything else is refused by name before it is stored."""

import enum
import functools
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.jobs.payload import DEEPEST, MAX_BYTES, READ_DEPTH, Mismatch, Signature, check_by_schema, dump, load

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NAIVE = datetime(2026, 1, 31, 12)
SOME_ID = UUID(int=7)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Reason(enum.StrEnum):
    LATE = "late"


class Size(enum.Enum):
    SMALL = 1
    LARGE = 2


class Right(enum.Flag, boundary=enum.STRICT):  # the default of some releases of 3.11 is another
    READ = 1
    WRITE = 2
    OWN = 4


class Gap(enum.Flag):
    FIRST = 1
    THIRD = 4


class Wide(enum.IntFlag):
    ONE = 1
    TWO = 2


class Weight(enum.Enum):
    HALF = 0.5


@dataclass(frozen=True)
class User:
    name: str
    age: int = 0
    born: datetime | None = None
    friends: tuple["User", ...] = ()


@dataclass(frozen=True)
class Sized:
    size: Size


@dataclass(frozen=True)
class Admin(User):
    powers: int = 1


@dataclass
class Team:
    lead: User
    share: float = 0.5
    names: list[str] = field(default_factory=list)


class Point(msgspec.Struct, frozen=True):
    x: int
    y: float = 0.0


class Cat(msgspec.Struct, tag=True, frozen=True):
    lives: int


class Dog(msgspec.Struct, tag=True, frozen=True):
    tricks: list[str]


class Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    first_name: str


class Row(msgspec.Struct, array_like=True, frozen=True):
    number: int
    text: str = ""


class Pair(NamedTuple):
    left: int
    right: str = ""


class Options(TypedDict, total=False):
    depth: int


Thing = TypeVar("Thing")


class Holder(msgspec.Struct, Generic[Thing]):
    thing: Thing


@dataclass
class Dangling:
    other: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Picky(msgspec.Struct):
    even: int

    def __post_init__(self) -> None:
        if self.even % 2:
            raise ValueError("odd")


def send(to: str, subject: str = "", *, copies: int = 1, when: datetime | None = None) -> None: ...


def taking(annotation: Any) -> Signature:
    def handler(value): ...

    handler.__annotations__["value"] = annotation
    return Signature.of(handler)


def refusal(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(Invalid) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    message.encode()
    assert "\n" not in message
    assert message.endswith(".")
    return message


def accepts(call: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        call(*args, **kwargs)
    except Invalid:
        return False
    return True


texts = st.text(max_size=8)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.claim("Q7")
@given(plain_values)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    text = dump(value, what="result")
    assert load(text) == value
    assert json.loads(text) == value


def wrapped_somewhere(bad: Any) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.just(bad),
        lambda inner: (
            inner.map(lambda value: [1, value])
            | inner.map(lambda value: (value, None))
            | inner.map(lambda value: {"a": 1, "b": value})
            | inner.map(lambda value: Holder(value))
            | inner.map(lambda value: OrderedDict(c=value))
        ),
        max_leaves=1,
    )


UNFIT = [
    math.nan,
    math.inf,
    -math.inf,
    Decimal("NaN"),
    Decimal("-Infinity"),
    "\ud800",
    "fine until \udfff",
    {"\ud800": 1},
    {1: "a"},
    {1.5: "a"},
    {None: "a"},
    {True: "a"},
    {SOME_ID: "a"},
    {Level.LOW: "a"},
    NAIVE,
    time(12),
    time(12, tzinfo=ZoneInfo("Europe/Amsterdam")),
    datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=61))),
    object(),
    1j,
    range(3),
    Path("/"),
    print,
    msgspec.Raw(b"1"),
    msgspec.Raw(b"{broken"),
]


@pytest.mark.claim("Q7")
@pytest.mark.parametrize("bad", UNFIT, ids=lambda bad: type(bad).__name__)
def test_what_json_would_change_or_lose_is_refused_however_deep_it_stands(bad: Any) -> None:
    @given(wrapped_somewhere(bad))
    @settings(max_examples=25)
    def refused(value: Any) -> None:
        assert refusal(dump, value, what="result").startswith("result ")

    refused()


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "result is nan, which JSON cannot carry; pass a finite number or None."),
        ({"a": [0, {"b": math.inf}]}, "result at `a[1].b` is inf, which JSON"),
        (User("Ann", born=NAIVE), "result at `born` is a datetime without a time zone; give it one"),
        ({"a": {1: 2}}, "result at `a` has the key 1, and JSON keys are strings"),
        ({"a": "\ud800"}, "result at `a` holds a lone surrogate"),
        ({"\ud800": 1}, r"result has the key '\ud800', which holds a lone surrogate"),
        ([object()], "result at `[0]` has no JSON form, got object; pass"),
        ({"a": 10**5000}, "result at `a` is an integer of more digits"),
        ({"a": {Colour.RED: 1, "red": 2}}, "result at `a` has two keys that are one and the same in JSON"),
        ([msgspec.UNSET], "result at `[0]` has no JSON form"),
    ],
)
def test_a_refusal_names_the_place_and_the_cure(value: Any, message: str) -> None:
    assert refusal(dump, value, what="result").startswith(message)


@pytest.mark.claim("Q7")
def test_a_refusal_names_what_was_handed_in() -> None:
    assert refusal(dump, [math.nan], what="argument `amount`").startswith("argument `amount` at `[0]` is nan")


@pytest.mark.claim("Q7")
def test_none_and_numbers_near_nan_are_not_taken_for_it() -> None:
    assert dump([None, 0.0, 1e308, "NaN"], what="result") == '[null,0.0,1e308,"NaN"]'
    assert dump((None, NOON), what="result") == '[null,"2026-01-31T12:00:00Z"]'


@pytest.mark.claim("Q7")
def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    assert "contains itself" in refusal(dump, loop, what="result")


@pytest.mark.claim("Q7")
def test_a_value_nested_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert "nested too deeply" in refusal(dump, deep, what="result")


@pytest.mark.claim("Q7")
def test_a_hundred_levels_are_accepted_and_no_more() -> None:
    def send(value: Any) -> None: ...

    taken = Signature.of(send)
    value: Any = {}
    for _ in range(DEEPEST - 2):
        value = [value]
    assert load(dump([value], what="result")) == [value]
    assert load(taken.check((), {"value": value})) == load(check_by_schema(None, {"value": value}, job_type="send"))
    for ask in (
        lambda: dump([[value]], what="result"),
        lambda: taken.check((), {"value": [value]}),
        lambda: check_by_schema(None, {"value": [value]}, job_type="send"),
    ):
        assert "nested too deeply, in more than 100 levels" in refusal(ask)


@pytest.mark.claim("Q7")
def test_what_is_stored_and_too_deep_is_read_as_far_as_it_can_be_shown() -> None:
    levels = 100_000
    found = load('{"a": ' + "[" * levels + '"]"' + "]" * levels + ', "b": "[\\"{", "c": [[]]}')
    assert {name: found[name] for name in "bc"} == {"b": '["{', "c": [[]]}
    part, depth = found["a"], 1
    while isinstance(part, list):
        part, depth = part[0], depth + 1
    assert (part, depth) == ("[nested too deeply]", READ_DEPTH)


@pytest.mark.claim("Q7")
def test_the_size_is_counted_in_bytes_and_the_limit_itself_is_allowed() -> None:
    assert MAX_BYTES == 1024 * 1024
    assert len(dump("x" * (MAX_BYTES - 2), what="result")) == MAX_BYTES
    assert "takes 1,048,577 bytes" in refusal(dump, "x" * (MAX_BYTES - 1), what="result")
    assert dump("é", what="result", limit=4) == '"é"'
    assert "takes 4 bytes as JSON, which is above the limit of 3" in refusal(dump, "é", what="result", limit=3)


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NOON, '"2026-01-31T12:00:00Z"'),
        (datetime(2026, 1, 31, 12, tzinfo=ZoneInfo("Europe/Amsterdam")), '"2026-01-31T12:00:00+01:00"'),
        (date(2026, 1, 31), '"2026-01-31"'),
        (time(12, tzinfo=UTC), '"12:00:00Z"'),
        (timedelta(seconds=90), '"PT90S"'),
        (SOME_ID, '"00000000-0000-0000-0000-000000000007"'),
        (Decimal("12.50"), '"12.50"'),
        (Colour.RED, '"red"'),
        (Level.HIGH, "2"),
        ({Colour.RED: 1, Reason.LATE: 2}, '{"red":1,"late":2}'),
        (b"\x00\x01", '"AAE="'),
        ((1, {2}), "[1,[2]]"),
        (Point(1), '{"x":1,"y":0.0}'),
        (Team(User("Ann")), '{"lead":{"name":"Ann","age":0,"born":null,"friends":[]},"share":0.5,"names":[]}'),
        (2**64, "18446744073709551616"),
        (-(2**63), "-9223372036854775808"),
        ("\x00 \U0001f600", '"\\u0000 \U0001f600"'),
    ],
)
def test_types_that_json_lacks_are_written_as_msgspec_writes_them(value: Any, text: str) -> None:
    assert dump(value, what="result") == text


zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=zones)
users = st.builds(User, texts, st.integers(), st.none() | moments)

TYPED: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Any, plain_values),
    (bool, st.booleans()),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)),
    (str, texts),
    (bytes, st.binary(max_size=9)),
    (datetime, moments),
    (date, st.dates()),
    (time, st.times(timezones=zones)),
    (timedelta, st.timedeltas()),
    (UUID, st.uuids()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Size, st.sampled_from(Size)),
    (Right, st.integers(0, 7).map(Right)),
    (Gap, st.sampled_from([0, 1, 4, 5]).map(Gap)),
    (Wide, st.integers(0, 9).map(Wide)),
    (list[Right | None], st.lists(st.none() | st.integers(0, 7).map(Right), max_size=3)),
    (dict[str, tuple[Size, ...]], st.dictionaries(texts, st.lists(st.sampled_from(Size)).map(tuple), max_size=2)),
    (frozenset[Size], st.frozensets(st.sampled_from(Size))),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (datetime | None, st.none() | moments),
    (int | str | list[datetime], st.integers() | texts | st.lists(moments, max_size=2)),
    (list[UUID], st.lists(st.uuids(), max_size=3)),
    (Sequence[int], st.lists(st.integers(), max_size=3)),
    (set[date], st.sets(st.dates(), max_size=3)),
    (frozenset[Colour], st.frozensets(st.sampled_from(Colour))),
    (tuple[int, str], st.tuples(st.integers(), texts)),
    (tuple[datetime, ...], st.lists(moments, max_size=3).map(tuple)),
    (dict[str, Decimal], st.dictionaries(texts, st.decimals(allow_nan=False, allow_infinity=False), max_size=3)),
    (dict[Colour, int], st.dictionaries(st.sampled_from(Colour), st.integers())),
    (User, st.builds(User, texts, st.integers(), st.none() | moments, st.lists(users, max_size=2).map(tuple))),
    (Team, st.builds(Team, users, st.integers(0, 9), st.lists(texts, max_size=2))),
    (Point, st.builds(Point, st.integers(), st.floats(allow_nan=False, allow_infinity=False))),
    (Cat | Dog | None, st.none() | st.builds(Cat, st.integers()) | st.builds(Dog, st.lists(texts, max_size=2))),
    (Strict, st.builds(Strict, texts)),
    (Row, st.builds(Row, st.integers(), texts)),
    (Pair, st.builds(Pair, st.integers(), texts)),
    (Options, st.fixed_dictionaries({}, optional={"depth": st.integers()})),
    (Holder[datetime], st.builds(Holder, moments)),
    (Annotated[int, msgspec.Meta(ge=0, lt=10)], st.integers(0, 9)),
    (Annotated[str, msgspec.Meta(pattern="^a+$", max_length=3)], st.sampled_from(["a", "aa", "aaa"])),
]


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(("annotation", "values"), TYPED, ids=[str(annotation) for annotation, _ in TYPED])
def test_an_argument_of_its_annotated_type_comes_back_equal_and_of_that_type(
    annotation: Any, values: st.SearchStrategy[Any]
) -> None:
    signature = taking(annotation)
    schema = signature.schema()

    @given(values)
    @settings(max_examples=40)
    def comes_back(value: Any) -> None:
        text = signature.check((value,), {})
        assert check_by_schema(schema, {"value": value}, job_type="handler") == text
        back = signature.convert(text)["value"]
        assert back == value
        if annotation is not float:
            assert type(back) is type(value)

    comes_back()


@pytest.mark.claim("Q7")
@given(st.datetimes(datetime(1950, 1, 1), timezones=st.just(ZoneInfo("Europe/Amsterdam"))))
def test_a_moment_in_a_named_zone_comes_back_as_the_same_instant(moment: datetime) -> None:
    signature = taking(datetime)
    back = signature.convert(signature.check((moment,), {}))["value"]
    # Compared in UTC: Python calls no two zones' times equal where a clock is changed.
    assert back.astimezone(UTC) == moment.astimezone(UTC)


NEAR = [
    *("2026-01-31T12:00:00Z", "2026-01-31T12:00:00+01:00", "2026-01-31T12:00:00", "2026-01-31", "12:00:00Z"),
    *("12:00:00", "PT90S", "P1W", "-P1D", str(SOME_ID), SOME_ID.hex, "12.50", "NaN", "1e5", "_", "AAE=", "AAE"),
    *("red", "blue", "green", "a", "aa", "aaaa", "Cat", 0, 1, 2, 10, -1, 1.0, 0.5, True, None, 10**30, "", [], {}),
    *({"name": "Ann"}, {"name": "Ann", "age": "1"}, {"name": 1}, {"age": 1}, {"lead": {"name": "Ann"}}, [1, "a"]),
    *({"name": "Ann", "born": "2026-01-31T12:00:00"}, {"name": "Ann", "friends": [{"name": "Bo", "born": "x"}]}),
    *(
        {"x": 1},
        {"x": 1, "z": 2},
        {"x": 1.5},
        {"type": "Cat", "lives": 9},
        {"lives": 9},
        {"type": "Dog", "tricks": [1]},
    ),
    *({"firstName": "A"}, {"first_name": "A"}, {"firstName": "A", "x": 1}, [1, "a", 2], [1, 2], {"depth": "x"}),
    *({"thing": "2026-01-31T12:00:00Z"}, {"thing": 1}, {"red": 1}, {"green": 1}, {"a": "1.5"}, {"a": "inf"}),
    *(["red", "red"], [str(SOME_ID)], ["x"], ["2026-01-31T12:00:00Z"], ["2026-01-31T12:00:00"], ["2026-01-31"]),
]


@pytest.mark.claim("Q3", "Q7")
@pytest.mark.parametrize("annotation", [annotation for annotation, _ in TYPED], ids=str)
def test_the_schema_accepts_exactly_the_payloads_that_convert(annotation: Any) -> None:
    signature = taking(annotation)
    schema = json.loads(json.dumps(signature.schema()))

    def agree(value: Any) -> None:
        text = dump({"value": value}, what="payload")
        by_schema = accepts(check_by_schema, schema, {"value": value}, job_type="handler")
        assert by_schema == accepts(signature.convert, text)
        assert by_schema == accepts(signature.check, (value,), {})

    for value in NEAR:
        for near in (value, [value], {"a": value}, {"thing": value}):
            agree(near)
    settings(max_examples=30)(given(plain_values)(agree))()


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("annotation", "value", "problem"),
    [
        (str, 5, "must be str, got int (5)"),
        (str, SOME_ID, "must be str, got UUID"),
        (str, NOON, "must be str, got datetime"),
        (str, b"a", "must be str, got bytes"),
        (str, Colour.RED, "must be str, got Colour"),
        (int, Size.SMALL, "must be int, got Size"),
        (Right, Size.SMALL, "must be Right, got Size"),
        (Right, 8, "is not accepted: Invalid enum value, got int (8)"),
        (str, None, "must be str, got NoneType (None)"),
        (int, "1", "must be int, got str ('1')"),
        (int, True, "must be int, got bool (True)"),
        (int, 1.0, "must be int, got float (1.0)"),
        (int, Decimal(1), "must be int, got Decimal"),
        (float, Decimal(1), "must be float, got Decimal"),
        (float, True, "must be float, got bool (True)"),
        (float, "1.5", "must be float, got str ('1.5')"),
        (bool, 1, "must be bool, got int (1)"),
        (date, NOON, "must be date, got datetime"),
        (datetime, 0, "must be datetime, got int (0)"),
        (timedelta, 90, "must be duration, got int (90)"),
        (User, 5, "must be User, got int (5)"),
        (User, Admin("Ann"), "must be User, got Admin"),
        (dict[str, str], User("Ann"), "must be object, got User"),
        (Colour, "green", "is not accepted: Invalid enum value, got str ('green')"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "must be int >= 0, got int (-1)"),
        (Picky, {"even": 1}, "is not accepted: odd, got dict"),
        (set[Any], [[1]], "is not accepted: unhashable"),
        (datetime, NAIVE, "is a datetime without a time zone"),
        (datetime, "2026-01-31T12:00:00", "is a datetime without a time zone"),
        (Decimal, "NaN", "is NaN"),
    ],
)
def test_an_argument_of_another_type_is_refused(annotation: Any, value: Any, problem: str) -> None:
    message = refusal(taking(annotation).check, (value,), {})
    place = "the payload" if "unhashable" in problem else "argument `value`"
    assert message.startswith(f"handler: {place} {problem}")
    assert message.endswith("Nothing was stored.")


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("annotation", "value", "place"),
    [
        (list[int], [1, "2"], "value[1]"),
        (list[Right], [Right.READ, Size.SMALL], "value[1]"),
        (dict[str, Right], {"a": Right.OWN, "b": Size.SMALL}, "value.b"),
        (set[Right], {Right.READ, Size.LARGE}, "value[...]"),
        (Sized, {"size": Right.READ}, "value.size"),
        (User, {"name": 5}, "value.name"),
        (User, User(5), "value.name"),  # type: ignore[arg-type]
        (User, {"age": 5}, "value.name"),
        (Strict, {"firstName": "Ann", "lastName": "B"}, "value.lastName"),
        (list[User], [User("Ann"), User("Bo", born=NAIVE)], "value[1].born"),
        (dict[str, datetime], {"a": "2026-01-31T12:00:00"}, "value.a"),
        (tuple[User, ...], [{"name": "Ann", "friends": [{"name": 1}]}], "value[0].friends[0].name"),
        (Any, {"a": [0, math.nan]}, "value.a[1]"),
    ],
)
def test_a_refusal_names_the_place_inside_an_argument(annotation: Any, value: Any, place: str) -> None:
    assert refusal(taking(annotation).check, (value,), {}).startswith(f"handler: argument `{place}` ")


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("annotation", "value", "text", "back"),
    [
        (Colour, "red", '"red"', Colour.RED),
        (Level, 2, "2", Level.HIGH),
        (Right, 3, "3", Right.READ | Right.WRITE),
        (Sized, {"size": Size.LARGE}, '{"size":2}', Sized(Size.LARGE)),
        (Any, Size.LARGE, "2", 2),
        (User, {"name": "Ann"}, '{"name":"Ann"}', User("Ann")),
        (Team, {"lead": User("Ann")}, None, Team(User("Ann"))),
        (Point, {"x": 1}, '{"x":1}', Point(1)),
        (datetime, "2026-01-31T12:00:00Z", '"2026-01-31T12:00:00Z"', NOON),
        (float, 3, "3", 3.0),
        (list[int], (1, 2), "[1,2]", [1, 2]),
        (set[str], ["a", "a"], '["a","a"]', {"a"}),
        (Any, {1, 2, 3}, "[1,2,3]", [1, 2, 3]),
        (Any, NOON, '"2026-01-31T12:00:00Z"', "2026-01-31T12:00:00Z"),
        (Decimal, 5, "5", Decimal(5)),
    ],
)
def test_what_json_carries_for_a_type_is_accepted_for_it(annotation: Any, value: Any, text: str, back: Any) -> None:
    signature = taking(annotation)
    stored = signature.check((value,), {})
    assert text is None or stored == f'{{"value":{text}}}'
    assert signature.convert(stored) == {"value": back}


@pytest.mark.claim("Q7")
def test_a_field_that_would_not_come_back_is_refused() -> None:
    message = refusal(taking(Team).check, (Team(lead=Admin("Ann", powers=9)),), {})
    assert message.startswith("handler: argument `value` would come back changed; pass exactly the annotated types")


@pytest.mark.claim("Q7")
def test_a_set_of_things_without_an_order_is_accepted() -> None:
    signature = taking(frozenset[Point])
    points = frozenset({Point(1), Point(2)})
    assert signature.convert(signature.check((points,), {})) == {"value": points}


@pytest.mark.claim("Q7")
def test_arguments_bind_as_in_a_call_and_defaults_stay_out() -> None:
    signature = Signature.of(send)
    assert signature.check(("a@b",), {"copies": 2}) == '{"to":"a@b","copies":2}'
    assert signature.check((), {"subject": "s", "to": "a@b"}) == '{"subject":"s","to":"a@b"}'
    assert signature.convert('{"to":"a@b"}') == {"to": "a@b"}
    assert signature.convert('{"to":"a@b","when":null}') == {"to": "a@b", "when": None}


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "send: argument `to` is missing; pass it"),
        ((), {"subject": "s"}, "send: argument `to` is missing; pass it"),
        (
            ("a",),
            {"subjcet": "s"},
            "send: argument `subjcet` is unknown; did you mean `subject`? The arguments are `to`",
        ),
        (("a",), {"zzz": 1}, "send: argument `zzz` is unknown. The arguments are `to`, `subject`, `copies`, `when`"),
        (("a",), {1: 1}, "send: argument `1` is unknown"),
        (("a",), {"\ud800": 1}, r"send: argument `\ud800` is unknown"),
        (("a",), {"to": "b"}, "send: argument `to` is given twice"),
        (
            ("a", "b", 3),
            {},
            "send: the payload gives 3 arguments by position where 2 are taken; pass the others by name",
        ),
    ],
)
def test_a_call_that_does_not_bind_is_refused_by_name(args: Any, kwargs: Any, message: str) -> None:
    assert refusal(Signature.of(send).check, args, kwargs).startswith(message)


@pytest.mark.claim("Q7")
def test_the_limit_holds_for_the_arguments_together() -> None:
    signature = Signature.of(send)
    assert len(signature.check(("x" * (MAX_BYTES - len('{"to":""}')),), {})) == MAX_BYTES
    assert "the payload takes 1,048,577 bytes" in refusal(signature.check, ("x" * (MAX_BYTES - 8),), {})
    assert "above the limit of 10" in refusal(signature.check, ("xxxxx",), {}, limit=10)
    assert "above the limit of 10" in refusal(check_by_schema, None, {"to": "xxxxx"}, job_type="send", limit=10)


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"to":5}', "send: stored argument `to` must be str, got int (5)."),
        ('{"to":"a","copies":"1"}', "send: stored argument `copies` must be int, got str ('1')."),
        ('{"to":"a","when":"2026-01-31T12:00:00"}', "send: stored argument `when` is a datetime without a time zone"),
        ('{"to":"a","cc":"b"}', "send: stored argument `cc` is unknown."),
        ("{}", "send: stored argument `to` is missing."),
        ("[]", "send: the stored payload must be object, got array."),
        ("null", "send: the stored payload must be object, got null."),
        ('{"to":', "send: the stored payload is not accepted: Input data was truncated."),
        ("", "send: the stored payload is not accepted: Input data was truncated."),
        ('{"to":"\ud800"}', "send: the stored payload is not accepted"),
        ('{"to":' + "[" * 9000 + "]" * 9000 + "}", "send: stored argument `to` must be str"),
    ],
)
def test_a_stored_payload_that_no_longer_fits_is_a_mismatch_by_name(text: str, message: str) -> None:
    with pytest.raises(Mismatch) as caught:
        Signature.of(send).convert(text)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("enqueue the job again with arguments that do.")


@pytest.mark.claim("Q7")
def test_a_handler_may_take_any_further_arguments_by_name() -> None:
    def handler(first: int, second: int = 2, **others): ...

    signature = Signature.of(handler)
    text = signature.check((1,), {"third": "x", "others": [1]})
    assert text == '{"first":1,"third":"x","others":[1]}'
    assert signature.convert(text) == {"first": 1, "third": "x", "others": [1]}
    assert check_by_schema(signature.schema(), load(text), job_type="handler") == text
    assert "argument `first` is missing" in refusal(signature.check, (), {"third": 1})
    assert "has the key 1" in refusal(signature.check, (1,), {1: 1})


@pytest.mark.claim("Q7")
def test_further_arguments_are_checked_and_converted_by_their_annotation() -> None:
    def handler(first: int, **others: datetime | None): ...

    signature = Signature.of(handler)
    text = signature.check((1,), {"when": NOON, "never": None})
    assert signature.convert(text) == {"first": 1, "when": NOON, "never": None}
    assert check_by_schema(signature.schema(), load(text), job_type="handler") == text
    for value, problem in [
        (5, "must be datetime | null, got int (5)"),
        (SOME_ID, "must be"),
        (NAIVE, "is a datetime w"),
    ]:
        assert f"argument `when` {problem}" in refusal(signature.check, (1,), {"when": value})
    assert "`when` must be" in refusal(check_by_schema, signature.schema(), {"first": 1, "when": 5}, job_type="handler")
    for stored in ["5", '"2026-01-31T12:00:00"']:
        with pytest.raises(Mismatch, match="stored argument `when`"):
            signature.convert(f'{{"first":1,"when":{stored}}}')


@pytest.mark.claim("Q7")
def test_a_handler_without_parameters_takes_the_empty_payload_only() -> None:
    signature = Signature.of(lambda: None)
    assert signature.check((), {}) == "{}"
    assert signature.convert("{}") == {}
    assert "argument `a` is unknown. The arguments are none at all" in refusal(signature.check, (), {"a": 1})


class Callables:
    def method(self, value: int) -> None: ...

    @classmethod
    def of_class(cls, value: int) -> None: ...

    @staticmethod
    def static(value: int) -> None: ...

    def __call__(self, value: "int") -> None: ...


async def awaited(value: "int") -> None: ...


def passed_through(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def with_prefix(prefix: str, value: int) -> None: ...


class Made:
    def __init__(self, value: int) -> None: ...


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (awaited, "awaited"),
        (Callables().method, "method"),
        (Callables.of_class, "of_class"),
        (Callables.static, "static"),
        (Callables(), "Callables"),
        (passed_through(awaited), "awaited"),
        (functools.lru_cache(awaited), "awaited"),
        (functools.partial(with_prefix, "p"), "with_prefix"),
        (Made, "Made"),
    ],
)
def test_every_kind_of_callable_has_its_parameters_read(function: Callable[..., Any], name: str) -> None:
    signature = Signature.of(function)
    assert signature.name == name
    assert signature.convert(signature.check((), {"value": 1})) == {"value": 1}
    assert refusal(signature.check, (), {"value": "1"}).startswith(f"{name}: argument `value` must be int")


@pytest.mark.claim("Q7")
def test_annotations_are_read_where_they_were_written_also_behind_another_modules_decorator() -> None:
    elsewhere: dict[str, Any] = {"functools": functools}
    exec(  # a decorator whose module does not know the name User
        "def decorated(function):\n"
        "    @functools.wraps(function)\n"
        "    def wrapper(*args, **kwargs): return function(*args, **kwargs)\n"
        "    return wrapper",
        elsewhere,
    )

    @elsewhere["decorated"]  # type: ignore[misc]
    def handler(value: "User") -> None: ...

    assert Signature.of(handler).convert('{"value":{"name":"Ann"}}') == {"value": User("Ann")}


@pytest.mark.claim("Q7")
def test_parameters_that_the_worker_fills_are_skipped_and_need_not_resolve() -> None:
    def handler(context: "OnlyForTypeCheckers", /, value: "int") -> "NorThis": ...  # type: ignore[name-defined]  # noqa: F821

    signature = Signature.of(handler, skip=1)
    assert signature.check((1,), {}) == '{"value":1}'
    assert "is called with 2 arguments" in refusal(Signature.of, lambda one, *, two: None, skip=2)


def positional_only(value, /): ...
def many(*values): ...
def with_path(value: Path): ...
def with_path_inside(value: list[dict[str, Path | None]]): ...
def unresolved(value: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821
def garbled(value: "list[int"): ...  # type: ignore  # noqa: F722
def dangling(value: Dangling): ...
def int_keys(value: dict[int, str]): ...
def id_keys(value: list[dict[UUID, str]]): ...
def two_texts(value: str | datetime): ...
def two_objects(value: User | Team): ...
def zoneless(value: Annotated[datetime, msgspec.Meta(tz=False)]): ...
def unread(value: msgspec.Raw): ...
def odd_enum(value: Weight): ...
def called(value: Callable[[], None]): ...
def anything_else(**value: complex): ...


@pytest.mark.claim("Q7")
@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (positional_only, "Remove the `/`"),
        (many, "Take a list instead"),
        (with_path, "Path cannot be read back from JSON. Annotate it"),
        (with_path_inside, "Path cannot be read back from JSON. Annotate it"),
        (unresolved, "(name 'Nowhere' is not defined). Define or import the type"),
        (garbled, "does not resolve"),
        (dangling, "name 'Nowhere' is not defined"),
        (int_keys, "annotate the keys as str"),
        (id_keys, "annotate the keys as str"),
        (two_texts, "more than one str-like type"),
        (two_objects, "Type unions may not contain more than one"),
        (zoneless, "drop tz=False"),
        (unread, "Raw cannot be read back"),
        (odd_enum, "Enums must contain either all str or all int values"),
        (called, "Callable cannot be read back"),
        (anything_else, "complex cannot be read back"),
        (max, "cannot be read"),
        (5, "cannot be read"),
    ],
)
def test_a_parameter_that_no_payload_can_fill_is_refused_at_declaration(function: Any, cure: str) -> None:
    message = refusal(Signature.of, function)
    assert cure in message
    if function not in (max, 5):
        assert message.startswith(f"{function.__name__}: ")
        assert "value" in message


@pytest.mark.claim("Q3", "Q7")
def test_the_schema_says_what_a_handler_takes() -> None:
    def handler(
        to: str, at: Annotated[datetime, msgspec.Meta(description="when")], user: User | None = None, **rest: int
    ): ...

    assert Signature.of(handler).schema() == {
        "title": "handler",
        "type": "object",
        "properties": {
            "to": {"type": "string"},
            "at": {"description": "when", "type": "string", "format": "date-time"},
            "user": {"anyOf": [{"$ref": "#/$defs/User"}, {"type": "null"}]},
        },
        "required": ["to", "at"],
        "additionalProperties": {"type": "integer"},
        "$defs": {
            "User": {
                "title": "User",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "age": {"type": "integer"},
                    "born": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
                    "friends": {"type": "array", "items": {"$ref": "#/$defs/User"}},
                },
                "required": ["name"],
                "additionalProperties": {},
            }
        },
    }


SAME_AS_MSGSPEC = [
    *(int, float, bool, str, bytes, date, timedelta, UUID, None, Literal["a", 1], tuple[int, str]),
    *(Annotated[int, msgspec.Meta(gt=0, le=9, multiple_of=3)], Annotated[float, msgspec.Meta(ge=0, lt=1)]),
    *(Annotated[str, msgspec.Meta(min_length=1, max_length=2, pattern="a")], list[int]),
    *(Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)], dict[str, int]),
    *(Annotated[dict[str, int], msgspec.Meta(min_length=1)], dict[Annotated[str, msgspec.Meta(max_length=2)], int]),
    *(Annotated[datetime, msgspec.Meta(tz=True)], Annotated[time, msgspec.Meta(tz=True)]),
    Annotated[bytes, msgspec.Meta(min_length=1, max_length=4)],
    Annotated[int, msgspec.Meta(title="T", examples=[1], extra_json_schema={"x-unit": "s"})],
]


@pytest.mark.claim("Q3")
@pytest.mark.parametrize("annotation", SAME_AS_MSGSPEC, ids=str)
def test_the_schema_of_a_simple_type_is_msgspecs_own(annotation: Any) -> None:
    theirs = msgspec.json.schema(annotation)
    if annotation == tuple[int, str]:
        assert theirs.pop("items") is False  # `maxItems` says it already
    assert taking(annotation).schema()["properties"]["value"] == theirs


@pytest.mark.claim("Q3")
def test_a_schema_is_the_same_whatever_was_declared_before_and_cannot_be_changed_from_outside() -> None:
    def handler(value: list[int | str | None]): ...

    def reordered(value: list[None | str | int]): ...  # noqa: RUF036

    signature = Signature.of(handler)
    signature.schema()["properties"].clear()
    assert signature.schema()["properties"] == Signature.of(reordered).schema()["properties"] != {}


@pytest.mark.claim("Q3")
def test_two_types_of_one_name_keep_their_own_schemas() -> None:
    inner = msgspec.defstruct("Same", [("a", int)])
    outer = msgspec.defstruct("Same", [("b", inner)])
    schema = taking(list[outer]).schema()  # type: ignore[valid-type]
    assert len(schema["$defs"]) == 2
    assert accepts(check_by_schema, schema, {"value": [{"b": {"a": 1}}]}, job_type="handler")
    assert not accepts(check_by_schema, schema, {"value": [{"a": 1}]}, job_type="handler")
    assert not accepts(check_by_schema, schema, {"value": [{"b": {"b": 1}}]}, job_type="handler")


def everything(
    to: str,
    copies: Annotated[int, msgspec.Meta(ge=1, lt=10, multiple_of=2)] = 2,
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0,
    user: User | None = None,
    pet: Cat | Dog | None = None,
    colour: Colour = Colour.RED,
    when: datetime | None = None,
    price: Decimal = Decimal(1),
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]+$", min_length=2, max_length=3)] = "AB",
    rows: Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)] = [1],  # noqa: B006
    named: Annotated[dict[Literal["a", "b"], int], msgspec.Meta(max_length=1)] = {},  # noqa: B006
    picture: bytes = b"",
) -> None: ...


@pytest.mark.claim("Q3", "Q7")
@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({}, "argument `to` is missing."),
        ({"to": 5}, "argument `to` must be string, got int (5)."),
        ({"to": "a", "usr": 1}, "argument `usr` is unknown; did you mean `user`?"),
        ({"to": "a", "copies": True}, "argument `copies` must be integer, got bool (True)."),
        ({"to": "a", "copies": 0}, "argument `copies` must be at least 1, got int (0)."),
        ({"to": "a", "copies": 10}, "argument `copies` must be below 10, got int (10)."),
        ({"to": "a", "copies": 3}, "argument `copies` must be a multiple of 2, got int (3)."),
        ({"to": "a", "share": 0}, "argument `share` must be above 0, got int (0)."),
        ({"to": "a", "share": 1.5}, "argument `share` must be at most 1, got float (1.5)."),
        ({"to": "a", "user": 5}, "argument `user` must be User or null, got int (5)."),
        ({"to": "a", "user": {"name": 1}}, "argument `user.name` must be string, got int (1)."),
        ({"to": "a", "user": {"name": "x", "friends": [{}]}}, "argument `user.friends[0].name` is missing."),
        ({"to": "a", "pet": {"type": "Cow"}}, "argument `pet` must be Cat or Dog or null, got dict"),
        ({"to": "a", "colour": "green"}, "argument `colour` must be one of 'blue', 'red', got str ('green')."),
        (
            {"to": "a", "when": "soon"},
            "argument `when` must be a date-time with its zone, like 2026-01-31T12:00:00Z, got",
        ),
        ({"to": "a", "when": "2026-01-31T12:00:00"}, "argument `when` must be a date-time with its zone"),
        ({"to": "a", "when": NAIVE}, "argument `when` is a datetime without a time zone"),
        ({"to": "a", "price": "NaN"}, "argument `price` must be a finite decimal number"),
        ({"to": "a", "code": "A"}, "argument `code` must have at least 2 characters, got 1."),
        ({"to": "a", "code": "ABCD"}, "argument `code` must have at most 3 characters, got 4."),
        ({"to": "a", "code": "ab"}, "argument `code` must match the pattern ^[A-Z]+$, got str ('ab')."),
        ({"to": "a", "rows": []}, "argument `rows` must have at least 1 items, got 0."),
        ({"to": "a", "rows": [1, 2, 3]}, "argument `rows` must have at most 2 items, got 3."),
        ({"to": "a", "rows": [1, "2"]}, "argument `rows[1]` must be integer, got str ('2')."),
        ({"to": "a", "named": {"c": 1}}, "argument `named.c` has a key that must be one of 'a', 'b', got str ('c')."),
        ({"to": "a", "named": {"a": 1, "b": 2}}, "argument `named` must have at most 1 properties, got 2."),
        ({"to": "a", "picture": "?"}, "argument `picture` must be bytes in base64, got str ('?')."),
        ({"to": math.nan}, "argument `to` is nan"),
        ({1: 2}, "the payload has the key 1"),
        ([1], "the payload must be a JSON object of named arguments, got list ([1])."),
        ("to", "the payload must be a JSON object"),
        (None, "the payload must be a JSON object"),
    ],
)
def test_a_payload_that_breaks_the_registered_schema_is_refused_by_name(payload: Any, message: str) -> None:
    signature = Signature.of(everything)
    said = refusal(check_by_schema, signature.schema(), payload, job_type="mail.send")
    assert said.startswith(f"mail.send: {message}")
    if isinstance(payload, dict):
        assert not accepts(signature.check, (), payload)


@pytest.mark.claim("Q3", "Q7")
def test_a_payload_that_keeps_the_registered_schema_is_stored_as_it_is() -> None:
    payload = {
        "to": "a",
        "copies": 4,
        "share": 0.5,
        "user": User("Ann", born=NOON),
        "pet": {"type": "Cat", "lives": 9},
        "colour": Colour.BLUE,
        "when": NOON,
        "price": "12.50",
        "code": "ABC",
        "rows": [1],
        "named": {"a": 1},
        "picture": b"\x00",
    }
    signature = Signature.of(everything)
    text = check_by_schema(signature.schema(), payload, job_type="mail.send")
    assert text == signature.check((), payload)
    assert signature.convert(text) == {**payload, "pet": Cat(9), "price": Decimal("12.50")}


@pytest.mark.claim("Q3", "Q7")
def test_without_a_schema_any_json_object_is_accepted_and_nothing_else() -> None:
    assert check_by_schema(None, {"a": [1, NOON]}, job_type="mail.send") == '{"a":[1,"2026-01-31T12:00:00Z"]}'
    assert "`a` is nan" in refusal(check_by_schema, None, {"a": math.nan}, job_type="mail.send")
    assert "JSON object" in refusal(check_by_schema, None, [1], job_type="mail.send")  # type: ignore[arg-type]


@pytest.mark.claim("Q3")
def test_a_schema_written_by_another_version_is_read_as_far_as_it_is_understood() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}, "b": {"type": "string", "format": "byte", "x": 1}}}
    assert accepts(check_by_schema, schema, {"a": 1, "b": "AAE=", "c": None}, job_type="j")
    assert "`a` must be one of 1, got bool (True)" in refusal(check_by_schema, schema, {"a": True}, job_type="j")
    assert "`b` must be bytes" in refusal(check_by_schema, schema, {"b": "?"}, job_type="j")
    closed = {"type": "object", "properties": {"a": False}, "additionalProperties": True}
    assert "`a` is not expected here" in refusal(check_by_schema, closed, {"a": 1}, job_type="j")
