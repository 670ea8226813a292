"""What `holdfast hooks send` sends is what the hooks understand; and what goes back to a forge is in its words."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Invalid
from holdfast.builds.badge import badge
from holdfast.builds.build import Build, BuildState
from holdfast.builds.forges import Ended, Ignored, Ping, Wanted
from holdfast.builds.project import Secret, StatusSettings
from holdfast.builds.sending import EVENTS, Facts, delivery
from holdfast.builds.statuses import message
from holdfast.builds.webhooks import FORGES, read, signed
from holdfast.jobs.job import Outcome

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FACTS = Facts(commit="ab" * 20, branch="topic", message="A change", author="ada")
MEANT = {"ping": (Ping, Ignored), "delete": Ended, "closed": Ended, "merged": Ended}


def build(**more: Any) -> Build:
    values = {"id": 5, "job_id": 9, "project": "demo", "commit": "ab" * 20, "ref": "r", "branch": "main", "tag": None}
    values |= {
        "pull_request": None,
        "forge": "github",
        "trusted": True,
        "title": "",
        "author": "",
        "error": None,
        "refs": (),
    }
    values |= {"build_state": BuildState.CACHED, "outcome": Outcome.SUCCESS, "event": "push", "attempt": 1, "steps": ()}
    return Build(**values, start_time=NOW, end_time=NOW, use_time=NOW, create_time=NOW, update_time=NOW, **more)


@pytest.mark.parametrize("forge", FORGES)
@pytest.mark.parametrize("event", EVENTS)
def test_what_is_sent_is_signed_and_understood(forge: str, event: str) -> None:
    headers, body = delivery(forge, event, FACTS, "s3cret", "d-1", NOW)
    lower = {name.lower(): value for name, value in headers.items()}
    assert signed(forge, "s3cret", lower, body, NOW)
    found = read(forge, lower, body)
    assert found.id == "d-1"
    assert isinstance(found.asks, MEANT.get(event, Wanted))
    if isinstance(found.asks, Wanted):
        assert (found.asks.commit, found.asks.stranger) == (FACTS.commit, False)
        assert found.asks.title in ("A change", "")


@pytest.mark.parametrize("forge", ["github", "gitlab", "gitea"])
def test_a_strangers_pull_request_can_be_played_too(forge: str) -> None:
    headers, body = delivery(forge, "pull_request", Facts(commit="ab" * 20, fork=True), "s", "d", NOW)
    asks = read(forge, {name.lower(): value for name, value in headers.items()}, body).asks
    assert isinstance(asks, Wanted)
    assert asks.stranger


@pytest.mark.parametrize("forge", FORGES)
def test_two_deliveries_of_one_thing_both_count(forge: str) -> None:
    """Their bodies differ, or their ids are signed."""
    sent = [delivery(forge, "push", FACTS, "s", identity, NOW) for identity in ("d-1", "d-2")]
    found = [read(forge, {name.lower(): value for name, value in headers.items()}, body) for headers, body in sent]
    assert found[0].id != found[1].id
    assert found[0].body is None or found[0].body != found[1].body


def test_with_a_signing_token_gitlab_signs_the_id() -> None:
    token = "whsec_" + base64.b64encode(b"k" * 24).decode()
    headers, body = delivery("gitlab", "push", FACTS, token, "d-1", NOW)
    lower = {name.lower(): value for name, value in headers.items()}
    assert signed("gitlab", token, lower, body, NOW)
    assert (read("gitlab", lower, body).id, read("gitlab", lower, body).body) == ("d-1", None)


def test_an_id_that_cannot_be_signed_is_refused() -> None:
    with pytest.raises(Invalid, match="cannot be signed"):
        delivery("generic", "push", FACTS, "s", "a b", NOW)


def test_an_event_that_nobody_sends_is_refused() -> None:
    with pytest.raises(Invalid, match="known are push"):
        delivery("github", "party", FACTS, "s", "d", NOW)


@pytest.mark.claim("B8")
@pytest.mark.parametrize(
    ("forge", "path", "token", "words"),
    [
        ("github", "/repos/me/demo/statuses/" + "ab" * 20, ("Authorization", "Bearer t"), ("failure", "error")),
        ("gitea", "/repos/me/demo/statuses/" + "ab" * 20, ("Authorization", "token t"), ("failure", "error")),
        ("gitlab", "/projects/me%2Fdemo/statuses/" + "ab" * 20, ("PRIVATE-TOKEN", "t"), ("failed", "canceled")),
        ("generic", "", ("Authorization", "Bearer t"), ("failed", "aborted")),
    ],
)
def test_each_forge_is_told_in_its_own_words(
    forge: str, path: str, token: tuple[str, str], words: tuple[str, str]
) -> None:
    settings = StatusSettings(forge, "https://forge", "me/demo", Secret("T"))
    sent = [
        message(settings, "t", build(), state, "d" * 500, "test", "https://ci/builds/5")
        for state in ("failed", "aborted")
    ]
    bodies = [json.loads(each.body) for each in sent]
    assert [each.url for each in sent] == [f"https://forge{path}"] * 2
    assert sent[0].headers[token[0]] == token[1]
    assert tuple(body["state"] for body in bodies) == words
    assert (bodies[0].get("context") or bodies[0]["name"], len(bodies[0]["description"])) == ("holdfast/demo/test", 140)
    assert bodies[0]["target_url"] == "https://ci/builds/5"


@pytest.mark.claim("B8")
def test_a_badge_says_how_it_went_and_no_more() -> None:
    assert "success" in badge("demo", build())
    assert "unknown" in badge("demo", None)
    evil = badge('"><script>alert(1)</script>', build())
    assert "<script" not in evil
    assert '""' not in evil
