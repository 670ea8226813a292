"""Statements that go to PostgreSQL together: their answers, their errors, and a connection that is lost meanwhile."""

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.stores.postgres.connection import Connection
from holdfast.stores.postgres.wire import Reply, Wire


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    made = Connection(postgres_url, 5)
    yield made
    made.close()


def sum_of(wire: Wire, first: int, second: int | None) -> object:
    with wire.pipeline():
        reply = wire.send("select %(first)s::int + %(second)s::int as sum", {"first": first, "second": second})
    return reply.dicts()[0]["sum"]


def test_every_statement_gets_its_own_answer(connection: Connection) -> None:
    with connection.wire.pipeline() as wire:
        wire.send("begin")
        many = wire.send("select n, %(word)s::text as word from generate_series(1, 3) n", {"word": "100 %"})
        none = wire.send("select 1 where 7 %% 2 = 0")
        wire.send("commit")
    assert many.dicts() == [{"n": n, "word": "100 %"} for n in (1, 2, 3)]
    assert (none.fetchall(), none.fetchone()) == ([], None)


def test_the_connection_may_be_used_while_statements_are_collected(connection: Connection) -> None:
    with connection.wire.pipeline() as wire:
        reply = wire.send("select %(n)s::int", {"n": 1})
        assert connection.database.execute("select 2").fetchall() == [(2,)]
    assert reply.fetchall() == [(1,)]


def test_more_than_the_server_takes_at_once_is_sent_and_read(connection: Connection) -> None:
    text = "x" * 3_000_000
    with connection.wire.pipeline() as wire:
        replies = [wire.send("select %(text)s::text", {"text": text}) for _ in range(4)]
    assert [reply.fetchall() == [(text,)] for reply in replies] == [True] * 4


def send_all(wire: Wire, *texts: str) -> None:
    with wire.pipeline():
        for text in texts:
            wire.send(text)


def test_the_first_error_is_told_and_the_connection_goes_on(connection: Connection) -> None:
    assert sum_of(connection.wire, 1, 2) == 3
    with pytest.raises(psycopg.errors.DivisionByZero):
        send_all(connection.wire, "select 1 / (select 0)", "select nothing from nowhere")
    assert sum_of(connection.wire, 1, None) is None
    assert sum_of(connection.wire, 3, 4) == 7


LATE = (
    "create table plain (n integer)",
    "create table never (n integer)",
    "create function late() returns trigger language plpgsql as $$ begin raise division_by_zero; end $$",
    "create constraint trigger late after insert on never deferrable initially deferred for each row execute function late()",
)


def insert_and_commit(wire: Wire, *, fails: bool) -> None:
    """All but the answer to the commit."""
    with wire.pipeline():
        wire.send("begin")
        reply = wire.send(f"insert into {'never' if fails else 'plain'} values (1) returning n")
        wire.end_later()
        wire.send("commit")
    assert reply.fetchall() == [(1,)]


def test_the_answer_to_a_commit_may_be_waited_for_later(connection: Connection) -> None:
    for statement in LATE:
        connection.database.execute(statement.encode())
    wire = connection.wire
    wire.finish()  # there is nothing to be finished
    for _ in range(2):
        insert_and_commit(wire, fails=False)
        wire.finish()
        insert_and_commit(wire, fails=True)
        with pytest.raises(psycopg.errors.DivisionByZero):
            wire.finish()
        insert_and_commit(wire, fails=True)
        wire.abandon()
        with pytest.raises(psycopg.errors.UndefinedColumn):
            send_all_later(wire, "select nothing", "select 1")
        wire.finish()
    assert sum_of(wire, 1, 2) == 3
    assert connection.database.execute(
        "select count(*) from plain union all select count(*) from never"
    ).fetchall() == [
        (2,),
        (0,),
    ]


def send_all_later(wire: Wire, *texts: str) -> None:
    with wire.pipeline():
        wire.end_later()
        for text in texts:
            wire.send(text)


def fail_in_a_transaction(connection: Connection) -> None:
    with connection.transaction():
        assert sum_of(connection.wire, 1, 2) == 3
        raise RuntimeError


def test_what_was_prepared_is_prepared_again_after_a_rollback(connection: Connection) -> None:
    with pytest.raises(RuntimeError):
        fail_in_a_transaction(connection)
    with connection.transaction():
        assert sum_of(connection.wire, 2, 3) == 5


def test_a_connection_that_is_lost_is_told_and_replaced(connection: Connection, postgres_url: str) -> None:
    wire = connection.wire
    assert sum_of(wire, 1, 2) == 3
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s, 5000)", [connection.database.info.backend_pid])
    with pytest.raises(psycopg.OperationalError):
        send_all(wire, "select 1")
    assert sum_of(connection.wire, 3, 4) == 7


def test_what_was_sent_off_is_answered_before_the_rest_is_sent(connection: Connection) -> None:
    with connection.wire.pipeline() as wire:
        first = wire.send("select %(n)s::int", {"n": 1})
        wire.send_off()
        later = wire.send("select 2")
        wire.send_off()
        assert wire.read(1)
        assert first.fetchall() == [(1,)]
        last = wire.send("select 3")
    assert [reply.fetchall() for reply in (later, last)] == [[(2,)], [(3,)]]
    assert sum_of(connection.wire, 3, 4) == 7


def test_an_error_in_what_was_sent_off_is_told_at_the_end(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), connection.wire.pipeline() as wire:  # noqa: PT012
        wire.send("select 1 / (select 0)")
        wire.send("select 2")
        wire.send_off()
        assert not wire.read(1)
        wire.send("select 3")
    assert sum_of(connection.wire, 3, 4) == 7


def test_what_was_sent_off_is_undone_when_it_is_given_up(connection: Connection) -> None:
    connection.database.execute("create temporary table n (n int)")
    with pytest.raises(KeyError), connection.transaction(), connection.wire.pipeline() as wire:  # noqa: PT012
        wire.send("insert into n values (1)")
        wire.send_off()
        wire.send("insert into n values (2)")
        raise KeyError
    assert connection.database.execute("select * from n").fetchall() == []
    assert sum_of(connection.wire, 3, 4) == 7


def test_a_statement_that_is_asked_alone_is_answered_again_and_again(connection: Connection) -> None:
    """The first time it has to be prepared."""
    question = "select %(first)s::int + %(second)s::int as sum"
    for second in (2, 3, None, 4):
        reply = connection.wire.ask(question, {"first": 1, "second": second})
        assert reply.fetchall() == [(None if second is None else 1 + second,)]
    assert sum_of(connection.wire, 3, 4) == 7


def test_after_an_error_a_statement_can_be_asked_again(connection: Connection) -> None:
    question = "select 12 / %(by)s::int"
    for by in (3, 0, 4, 0):  # an error the first time would be one of its preparing
        if by:
            assert connection.wire.ask(question, {"by": by}).fetchall() == [(12 // by,)]
        else:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.wire.ask(question, {"by": by})
    assert connection.database.execute("select 1").fetchall() == [(1,)]


def test_a_connection_that_is_lost_while_it_is_asked_is_closed(connection: Connection) -> None:
    database = connection.database
    with pytest.raises(psycopg.OperationalError):
        connection.wire.ask("select pg_terminate_backend(pg_backend_pid())", {})
    assert connection.database is not database
    assert sum_of(connection.wire, 3, 4) == 7


def test_a_statement_that_the_server_has_forgotten_is_prepared_again(connection: Connection) -> None:
    """As behind a pooler that takes its session for another one's."""
    question = "select %(n)s::int"
    assert connection.wire.ask(question, {"n": 1}).fetchall() == [(1,)]
    connection.database.pgconn.exec_(b"deallocate all")  # psycopg does not know of it
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.wire.ask(question, {"n": 2})
    assert connection.wire.ask(question, {"n": 3}).fetchall() == [(3,)]


def test_what_could_not_be_asked_does_not_go_out_later(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Wire, "_send_collected", lambda _: {}["trouble"])
        with pytest.raises(KeyError, match="trouble"):
            connection.wire.ask("select 1 / 0", {})
    assert sum_of(connection.wire, 3, 4) == 7


@pytest.fixture
def refused_late(connection: Connection) -> str:
    """An insert that is refused when it is committed, after it was answered."""
    for statement in (
        "create temporary table late (a int)",
        "create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'too late'; end $$",
        "create constraint trigger refuse after insert on late deferrable initially deferred "
        "for each row when (new.a > 1) execute function pg_temp.refuse()",
    ):
        connection.database.execute(statement.encode())
    return "insert into late values (%(a)s) returning a"


def test_an_answer_counts_only_if_it_was_committed(connection: Connection, refused_late: str) -> None:
    for number in (2, 1, 2):  # before it is prepared, and after
        if number == 1:
            assert connection.wire.ask(refused_late, {"a": number}).fetchall() == [(number,)]
            continue
        with pytest.raises(psycopg.errors.RaiseException, match="too late"):
            connection.wire.ask(refused_late, {"a": number})
    assert connection.database.execute("select a from late").fetchall() == [(1,)]


def test_a_pipeline_without_a_transaction_counts_only_if_it_was_committed(
    connection: Connection, refused_late: str
) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="too late"), connection.wire.pipeline() as wire:
        wire.send(refused_late, {"a": 2})


def put_behind(wire: Wire, *numbers: int) -> Reply:
    """One transaction that keeps these numbers; the answer is how many are kept then."""
    with wire.behind():
        for number in numbers:
            wire.send("insert into kept values (%(number)s::int)", {"number": number})
        return wire.send("select count(*) as kept from kept")


def put_text_behind(wire: Wire, text: str) -> None:
    with wire.behind():
        wire.send("insert into kept values (2)")
        wire.send("select %(text)s::text", {"text": text})


@pytest.fixture
def keeping(connection: Connection) -> Connection:
    connection.database.execute("create temporary table kept (number int primary key)")
    return connection


def kept(connection: Connection) -> list[int]:
    return [row[0] for row in connection.database.execute("select number from kept order by number")]


def test_what_is_put_behind_what_is_not_answered_yet_is_read_in_its_order(keeping: Connection) -> None:
    wire = keeping.wire
    replies = [put_behind(wire, 1, 2), put_behind(wire, 3), put_behind(wire, 4)]
    for reply, found in zip(replies, (2, 3, 4), strict=True):
        wire.finish()
        assert reply.dicts() == [{"kept": found}]
    wire.finish()  # nothing is left
    assert kept(keeping) == [1, 2, 3, 4]


def test_what_is_put_behind_something_refused_is_a_transaction_of_its_own(keeping: Connection) -> None:
    wire = keeping.wire
    put_behind(wire, 1)
    wire.finish()  # and it is prepared
    put_behind(wire, 2, 1)
    fine = put_behind(wire, 3)
    with pytest.raises(psycopg.errors.UniqueViolation):
        wire.finish()
    wire.finish()
    assert (fine.dicts(), kept(keeping)) == ([{"kept": 2}], [1, 3])


def test_what_could_not_be_collected_is_not_sent(keeping: Connection) -> None:
    wire = keeping.wire
    before = put_behind(wire, 1)
    with pytest.raises(psycopg.DataError, match="NUL"):
        put_text_behind(wire, "\0")
    after = put_behind(wire, 3)
    wire.finish()
    wire.finish()
    assert (before.dicts(), after.dicts(), kept(keeping)) == ([{"kept": 1}], [{"kept": 2}], [1, 3])


def test_all_that_was_put_behind_is_forgotten_together(keeping: Connection) -> None:
    wire = keeping.wire
    put_behind(wire, 1)
    put_behind(wire, 2)
    wire.abandon()
    assert kept(keeping) == [1, 2], "it was on its way"
    assert sum_of(wire, 1, 2) == 3


def test_a_connection_that_is_lost_meanwhile_answers_none_of_them(keeping: Connection, postgres_url: str) -> None:
    wire, pid = keeping.wire, keeping.database.info.backend_pid
    with wire.behind():
        wire.send("select pg_sleep(60)")
    put_behind(wire, 1)
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", (pid,))
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            wire.finish()
    assert keeping.wire is not wire


def test_what_was_to_be_prepared_behind_something_refused_is_prepared_the_next_time(keeping: Connection) -> None:
    wire = keeping.wire
    with pytest.raises(psycopg.errors.DivisionByZero):
        send_all(wire, "select 1 / (select 0)", "insert into kept values (1)")
    send_all(wire, "insert into kept values (1)")
    assert kept(keeping) == [1]
