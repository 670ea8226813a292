"""Secrets are found in texts, in the forms that common encoders write."""

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.jobs.secrets import SHOWN, Redaction, redacted

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SECRETS = st.text(st.characters(codec="utf-8"), min_size=4, max_size=60).filter(
    lambda text: len(text.strip()) >= 4 and text.strip() not in SHOWN
)
ENCODERS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "repr": repr,
    "ascii": ascii,
    "repr of bytes": lambda text: repr(text.encode()),
    "JSON": json.dumps,
    "JSON in Unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON of msgspec": lambda text: msgspec.json.encode(text).decode(),
    "percent": quote,
    "percent, all of it": lambda text: quote(text, safe=""),
    "percent, of a form": quote_plus,
    "percent, as encodeURIComponent": lambda text: quote(text, safe="!'()*"),
    "HTML": html.escape,
    "hexadecimal": lambda text: text.encode().hex(),
}
IN_BASE64 = [base64.b64encode, base64.urlsafe_b64encode]


def shown(text: str, *secrets: str) -> list[str]:
    """The rest of the text, in pieces."""
    return Redaction(secrets).apply(text).split(SHOWN)


@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=100)
@given(before=TEXT, secret=SECRETS, after=TEXT)
@example(before='"', secret="it's all", after="")
@example(before="", secret='"it\'s" \\ all', after="'")
def test_no_encoder_hides_a_secret(encoder: str, before: str, secret: str, after: str) -> None:
    encode = ENCODERS[encoder]
    text = encode(before + secret + after)
    marker = encode(secret.strip()).strip("b\"'")
    assert [piece for piece in shown(text, secret) if marker in piece] == []
    assert SHOWN in Redaction((secret,)).apply(text)


def decoded(piece: str) -> list[bytes]:
    """What a piece of base64 says, from each place where a group may begin."""
    plain = piece.translate(str.maketrans("-_", "+/")).rstrip("=")
    pieces = [plain[skip:] for skip in range(4)]
    return [base64.b64decode(each[: len(each) // 4 * 4]) for each in pieces]


@pytest.mark.parametrize("encode", IN_BASE64, ids=["standard", "for URLs"])
@settings(max_examples=300)
@given(before=st.binary(max_size=9), secret=SECRETS, after=st.binary(max_size=9))
def test_base64_hides_no_secret_wherever_it_begins(
    encode: Callable[[bytes], bytes], before: bytes, secret: str, after: bytes
) -> None:
    text = encode(before + secret.encode() + after).decode()
    inner = secret.strip().encode()[1:-1]  # the bytes at its ends share characters with their neighbours
    assert SHOWN in Redaction((secret,)).apply(text)
    assert [piece for piece in shown(text, secret) if any(inner in said for said in decoded(piece))] == []


@pytest.mark.parametrize("length", [64, 76])
def test_a_long_secret_is_found_in_the_lines_of_its_base64(length: int) -> None:
    key = "-----BEGIN KEY-----\n" + "\n".join(f"{number:060}" for number in range(9)) + "\n-----END KEY-----\n"
    whole = base64.b64encode(key.strip().encode()).decode()
    lines = "\n".join(whole[at : at + length] for at in range(0, len(whole), length))
    assert set(Redaction((key,)).apply(lines).rstrip("=").split("\n")) == {SHOWN}
    assert set(Redaction((key,)).apply(key).split("\n")) == {SHOWN, ""}


@given(TEXT, st.lists(SECRETS, max_size=3), TEXT)
def test_a_text_without_secrets_stays(before: str, secrets: list[str], after: str) -> None:
    text = before + after
    redaction = Redaction(tuple(secrets))
    if not any(pattern in text for pattern in redaction.patterns):
        assert redaction.apply(text) == text


def test_secrets_that_overlap_are_one_stretch() -> None:
    assert Redaction(("abcdef", "defghi")).apply("<abcdefghi>") == f"<{SHOWN}>"
    assert Redaction(("aXaXa",)).apply("<aXaXaXa>") == f"<{SHOWN}>"
    assert Redaction(("abaab",)).apply("<abaabaab>") == f"<{SHOWN}>"


def test_what_is_shown_in_its_place_is_not_searched() -> None:
    assert Redaction(("secret", "hunter2!")).apply("the secret is hunter2!") == f"the {SHOWN} is {SHOWN}"


@pytest.mark.parametrize("text", ["739", "code 739.", "[739]", "a=739&b"])
def test_a_short_secret_is_replaced_where_it_is_a_word(text: str) -> None:
    assert Redaction(("739",)).apply(text) == text.replace("739", SHOWN)


@pytest.mark.parametrize("text", ["17390", "x739", "739_", "é739"])
def test_a_short_secret_tears_no_holes_into_words(text: str) -> None:
    assert Redaction(("739",)).apply(text) == text


def test_a_long_text_of_a_secret_that_repeats_itself_is_cleaned_in_one_go() -> None:
    assert Redaction(("a" * 2000,)).apply("a" * 5_000_000 + "b") == f"{SHOWN}b"


def test_values_are_cleaned_with_their_names_and_numbers() -> None:
    redaction = Redaction(("hunter2!", "739", "4711"))
    value = {"hunter2!": ["my hunter2!", 739, 7390, 4711, 14711, True, None, 0.5], "n": {"x": 739}}
    assert redaction.apply_to(value) == {
        SHOWN: [f"my {SHOWN}", SHOWN, 7390, SHOWN, SHOWN, True, None, 0.5],
        "n": {"x": SHOWN},
    }


def test_a_redaction_is_made_of_the_arguments_that_are_named() -> None:
    payload = {"user": "adalovelace", "password": {"old": "hunter2!", "codes": [4711, True]}}
    redaction = Redaction.of(payload, ("password", "nothing"))
    assert redaction.secrets == ("hunter2!", "4711")
    assert redacted(payload, ("password",)) == {"user": "adalovelace", "password": SHOWN}


@pytest.mark.parametrize("payload", ['{"to": "hunter2!"', '["hunter2!"]', ""])
def test_of_a_damaged_payload_all_is_secret(payload: str) -> None:
    assert payload not in Redaction.of_json(payload, ("to",)).apply(f"cannot read <{payload}>") or not payload


def test_a_redaction_survives_the_way_to_a_child_process() -> None:
    redaction = Redaction(("hunter2!",))
    copy = msgspec.json.decode(msgspec.json.encode(redaction), type=Redaction)
    assert copy.apply("hunter2!") == SHOWN
