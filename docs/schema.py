"""What the migrations make, dumped: `stores/sqlite/schema.sql` and `stores/postgres/schema.sql`.

- Both show an instance `holdfast` with one queue, `work`, after the last migration. Nothing reads them but people.
- `python -m docs.schema --write` writes both; `--check` says which is stale and exits 1 then.
- PostgreSQL is started for it, in a temporary folder, unless a test hands in a database.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from holdfast import App
from tests.postgres_server import BINARIES, Server

STORES = Path(__file__).resolve().parent.parent / "src" / "holdfast" / "stores"
SQLITE, POSTGRES = STORES / "sqlite" / "schema.sql", STORES / "postgres" / "schema.sql"
CURE = "Run `make docs` and commit the files."
HEAD = """\
-- An instance `holdfast` with one queue, `work`, after the last migration. Written by `make docs`; read by people only.
"""

# What differs from one dump or server to the next, and what only says where a statement comes from.
NOISE = re.compile(r"^(--.*|\\(un)?restrict .*|SET .*;|SELECT pg_catalog\.set_config\(.*)$", re.MULTILINE)
NOT_NULL_NAME = re.compile(r"CONSTRAINT \w+_not_null (?=NOT NULL)")  # given since PostgreSQL 18


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The tables that the migrations make.")
    verb = parser.add_mutually_exclusive_group(required=True)
    verb.add_argument("--check", action="store_true", help="exit 1 when one of them is stale")
    verb.add_argument("--write", action="store_true", help="write both")
    options = parser.parse_args(arguments)
    server = Server().start()
    try:
        texts = {SQLITE: sqlite(), POSTGRES: postgres(server.url())}
    finally:
        server.remove()
    if options.write:
        for file, text in texts.items():
            file.write_text(text)
        return 0
    found = stale(texts)
    print("\n".join(found) or "Both schema.sql are as the migrations make them.")
    return 1 if found else 0


def stale(texts: Mapping[Path, str]) -> list[str]:
    """What is not on disk as it should be, a sentence each."""
    old = [file for file, text in texts.items() if not file.exists() or file.read_text() != text]
    return [f"{file.relative_to(STORES.parents[2])} is stale. {CURE}" for file in old]


def sqlite() -> str:
    """The statements as SQLite keeps them, in the order they were executed."""
    with _app("sqlite://:memory:") as app, app.transaction() as connection:
        wanted = "select sql from sqlite_master where sql is not null and name not like 'sqlite_%' order by rowid"
        statements = [sql for (sql,) in connection.execute(wanted)]
    return HEAD + "".join(f"\n{statement};\n" for statement in statements)


def postgres(url: str) -> str:
    """What pg_dump says of an empty database in which the instance was set up."""
    with _app(url) as app:
        app.find(limit=0)
    command = [str(BINARIES / "pg_dump"), "--schema-only", "--no-owner", "--no-privileges", url]
    dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    text = NOT_NULL_NAME.sub("", NOISE.sub("", dump)).replace("public.", "")
    return HEAD + "\n" + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _app(url: str) -> App:
    app = App(url, name="holdfast")
    app.queue("work")
    return app


if __name__ == "__main__":
    sys.exit(main())
