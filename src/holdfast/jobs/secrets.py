"""Secret arguments: what views show instead of them, and how a worker takes them out of texts.

- The handler gets the value. Views, logs, errors and tracebacks do not.
- `Redaction` finds a secret as it is and in the forms that common encoders give it. It does not find a secret that code
  changes in another way: reversed, split, compressed, encrypted, or encoded twice.
- A text is cleaned before it is cut to its length: a secret that was cut in two would not be found.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Self
from urllib.parse import quote

import msgspec
from msgspec import Struct

from holdfast.jobs import damage
from holdfast.jobs.damage import Damaged

SHOWN = "[secret]"
SHORTEST = 4  # characters; a shorter secret is only found where it stands as a word of its own
MOST_WRAPPED = 1 << 14  # characters of base64; a longer text is not looked for in lines
LINE_LENGTHS = (64, 76)  # characters of a line of base64, as PEM and MIME have it
LEADING = (0, 2, 3)  # characters of base64 that depend on 0, 1 or 2 bytes before the secret
TRAILING = (0, 3, 2)  # characters of base64, padding included, that depend on the bytes after it
UNQUOTED = ("", "/", "!'()*", ";,/?:@&=+$!'()*#")  # what Python's `quote` and JavaScript's encoders leave as it is
decode_table = msgspec.json.Decoder(dict[str, Any]).decode


class EveryName(Collection[str]):
    """Contains every name: where the list of secret arguments is damaged, no argument is shown."""

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


def redacted(payload: Mapping[str, Any], names: Collection[str], whole: bool = False) -> dict[str, Any]:
    """A payload as views show it. `whole`: its names cannot be read, so nothing of it is shown if there are secrets."""
    if whole and names:
        return dict.fromkeys(payload, SHOWN)
    return {name: SHOWN if name in names else value for name, value in payload.items()}


def joined(names: Collection[str], more: Collection[str]) -> tuple[str, ...]:
    """The names, and those that only the second has. A name that was secret once stays so."""
    return (*names, *(name for name in more if name not in names))


class Redaction(Struct, frozen=True, dict=True):
    """Replaces secrets in texts and values. The forms of the secrets are made when the first text is cleaned."""

    secrets: tuple[str, ...] = ()
    shown: str = SHOWN

    @classmethod
    def of(cls, payload: Mapping[str, Any], names: Collection[str]) -> Self:
        """For the texts and numbers under these names."""
        return cls(tuple(dict.fromkeys(text for name in payload if name in names for text in _texts(payload[name]))))

    @classmethod
    def of_json(cls, payload: str, names: Collection[str]) -> Self:
        """The same for a stored payload. If it is damaged, all of it is secret."""
        found = damage.read(decode_table, payload)
        return cls((payload,)) if isinstance(found, Damaged) else cls.of(found, names)

    def apply(self, text: str) -> str:
        """The text with `shown` in the place of each stretch of secrets. Takes time in proportion to the text."""
        if not self.secrets:
            return text
        at = 0
        shown: list[str] = []
        for start, end in self._stretches(text):
            shown += text[at:start], self.shown
            at = end
        return "".join((*shown, text[at:])) if shown else text

    def apply_to(self, value: Any) -> Any:
        """The value with all its texts cleaned, and its numbers where a secret is a number."""
        if not self.secrets:
            return value
        if isinstance(value, str):
            return self.apply(value)
        if isinstance(value, dict):
            return {self.apply_to(name): self.apply_to(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply_to(each) for each in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and self.apply(str(value)) != str(value):
            return self.shown
        return value

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """Every text that is looked for wherever it stands."""
        return tuple({form for secret in self._long for form in forms(secret)})

    @property
    def _long(self) -> Iterator[str]:
        return (secret for secret in self.secrets if len(secret.strip()) >= SHORTEST)

    @cached_property
    def _words(self) -> re.Pattern[str] | None:
        short = {secret.strip() for secret in self.secrets if 0 < len(secret.strip()) < SHORTEST}
        if not short:
            return None
        words = "|".join(map(re.escape, sorted(short, key=len, reverse=True)))
        return re.compile(rf"(?<!\w)(?:{words})(?!\w)")

    def _stretches(self, text: str) -> list[tuple[int, int]]:
        """Where secrets stand, in order; those that touch or overlap are one."""
        found = [place for pattern in self.patterns for place in _places(text, pattern)]
        if self._words is not None:
            found += [match.span() for match in self._words.finditer(text)]
        return _joined(sorted(found))


def forms(secret: str) -> Iterator[str]:
    """The secret as it is, line by line, and as common encoders write it."""
    text = secret.strip()
    raw = text.encode("utf-8", "surrogateescape")
    lines = [line.strip() for line in text.splitlines()]
    for part in {text, *(line for line in lines if len(line) >= SHORTEST)}:
        yield from _quoted(part)
    yield from (html.escape(text), text.replace("'", "'\\''"), text.replace("'", "'\"'\"'"))
    yield from _percent_encoded(raw)
    yield from _in_base64(raw)
    yield from (raw.hex(), raw.hex().upper())


def _quoted(text: str) -> Iterator[str]:
    """As Python and JSON write it, within quotes of either kind."""
    raw = text.encode("utf-8", "surrogateescape")
    yield text
    for written in (repr, ascii):
        yield written(text)[1:-1]
        yield written(f"\"'{text}")[4:-1]  # both quotes before it: those inside it are escaped
    yield repr(raw)[2:-1]
    yield repr(b"\"'" + raw)[5:-1]
    for as_json in (json.dumps(text), json.dumps(text, ensure_ascii=False), _compact(text)):
        yield from (as_json[1:-1], as_json[1:-1].replace("/", "\\/"))


def _compact(text: str) -> str:
    """As Holdfast writes JSON itself; text that is no Unicode as Python does."""
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        return json.dumps(text)


def _percent_encoded(raw: bytes) -> Iterator[str]:
    for safe in UNQUOTED:
        quoted = quote(raw, safe=safe)
        for written in (quoted, re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)):
            yield from (written, written.replace("%20", "+"))


def _in_base64(raw: bytes) -> Iterator[str]:
    """Wherever it begins in an encoded text, without the characters that it shares with its neighbours."""
    for before in range(3):
        encoded = b64encode(bytes(before) + raw).decode()
        inner = encoded[LEADING[before] : len(encoded) - TRAILING[(before + len(raw)) % 3]]
        yield from _both_alphabets(inner)
    whole = b64encode(raw).decode()
    yield from _both_alphabets(whole.rstrip("="))
    if len(whole) <= MOST_WRAPPED:
        for length in LINE_LENGTHS:
            lines = (whole[at : at + length].rstrip("=") for at in range(0, len(whole), length))
            yield from (form for line in lines if len(line) >= SHORTEST for form in _both_alphabets(line))


def _both_alphabets(encoded: str) -> tuple[str, str]:
    return encoded, encoded.replace("+", "-").replace("/", "_")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _places(text: str, pattern: str) -> list[tuple[int, int]]:
    """Where the pattern stands; places that overlap or touch are one."""
    found: list[tuple[int, int]] = []
    last, at = -len(pattern), text.find(pattern)
    while at >= 0:
        end = at + len(pattern)
        if found and at < found[-1][1]:
            # It overlaps itself by a period: the rest of the run is compared period by period, not pattern by pattern.
            period = pattern[last - at :]
            while text.startswith(period, end):
                end += len(period)
        if found and at <= found[-1][1]:
            found[-1] = found[-1][0], end
        else:
            found.append((at, end))
        last = end - len(pattern)
        at = text.find(pattern, last + 1)
    return found


def _joined(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in places:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
