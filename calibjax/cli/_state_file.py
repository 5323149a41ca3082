"""The file of `calibjax monitor`: a database of SQLite, in which each call is one transaction."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from calibjax.cli._batches import MIN_ROWS, N_REMEMBERED, Batch, hint_of_restart, sort_key
from calibjax.cli._monitor_state import Evidence, MonitorState, Stream

# SQLite keeps both numbers in the head of the file; the version changes with what tables hold.
_APPLICATION, _VERSION = int.from_bytes(b"cjmo", "big"), 1
_TABLES = f"""
CREATE TABLE options (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batches (id INTEGER PRIMARY KEY, key TEXT UNIQUE, name TEXT NOT NULL,
    n_rows INTEGER NOT NULL, file TEXT NOT NULL, time TEXT NOT NULL);
CREATE TABLE rows (hash INTEGER NOT NULL, batch INTEGER NOT NULL REFERENCES batches);
CREATE INDEX rows_by_hash ON rows (hash);
CREATE TABLE streams (name TEXT UNIQUE, monitor BLOB NOT NULL, log_max REAL NOT NULL,
    changed_at INTEGER NOT NULL, alarm TEXT, alarm_row INTEGER, n_sharing INTEGER, impossible TEXT);
CREATE TABLE evidence (stream TEXT NOT NULL REFERENCES streams (name), batch TEXT NOT NULL,
    n_rows INTEGER NOT NULL, log_e_value REAL NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION}"""
# For how many seconds a call waits for others.
_PATIENCE = 300.0


# Where a batch came from, in words.
_ORIGIN = "file || iif(name = file, '', ', as ' || name || ',') || ' at ' || time"


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a state, into which all that a block writes comes at its end, or nothing.

    Until then other calls for the same file wait.  Of a call that is killed SQLite undoes what it
    wrote when the file is opened again.

    Raises:
        ValueError: the file is of something else, is damaged, or cannot be written.
    """
    try:
        with closing(sqlite3.connect(path, _PATIENCE, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            words = "application_id", "user_version", "quick_check(1)"
            found = [database.execute(f"PRAGMA {x}").fetchone()[0] for x in words]
            if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _TABLES.split(";"):
                    database.execute(statement)
            elif found != [_APPLICATION, _VERSION, "ok"]:
                got = "a damaged one" if found[2] != "ok" else "another database"
                if found[0] == _APPLICATION and found[1] != _VERSION:
                    got = f"one of another version of calibjax, {found[1]} for {_VERSION}"
                raise sqlite3.DatabaseError(f"expected a --state, got {got}; begin a new one")
            yield database
            database.execute("COMMIT")
    except sqlite3.Error as error:
        reason = str(error)
        if "not a database" in reason:
            reason += "; begin a new --state, as npz files of earlier versions cannot be read"
        raise ValueError(
            f"{path}: {reason}. Nothing was counted, and the state is what it was before this call."
        ) from error


def read_state(database: sqlite3.Connection) -> MonitorState | None:
    """The state that a database holds; None before the first call."""
    select = database.execute
    options = {x: json.loads(y) for x, y in select("SELECT name, value FROM options")}
    streams = [Stream(*row) for row in select("SELECT * FROM streams ORDER BY rowid")]
    by_name = {stream.name: stream for stream in streams}
    for name, *row in select("SELECT * FROM evidence ORDER BY rowid"):
        by_name[name].evidence.append(Evidence(*row))
    return MonitorState(options, streams) if options else None


def write_state(
    database: sqlite3.Connection, state: MonitorState, batches: Sequence[Batch], source: str
) -> None:
    """Writes a state after some more batches of a file into a database."""
    write, write_all = database.execute, database.executemany
    options = [(name, json.dumps(value)) for name, value in state.options.items()]
    write_all("INSERT OR REPLACE INTO options VALUES (?, ?)", options)
    time = datetime.now(UTC).isoformat(" ", "minutes")
    for x in batches:
        # A key counts once, but for --again.
        k = write(
            "INSERT INTO batches SELECT NULL, iif(count(*), NULL, :key), :name, :n_rows, :file, "
            ":time FROM batches WHERE key = :key",
            {"key": x.key, "name": x.name, "n_rows": len(x.hashes), "file": source, "time": time},
        ).lastrowid
        write_all("INSERT INTO rows VALUES (?, ?)", [(row, k) for row in x.telling])
    write(f"DELETE FROM rows WHERE rowid <= (SELECT max(rowid) FROM rows) - {N_REMEMBERED}")
    write("DELETE FROM streams")
    for stream in state.streams:
        *fields, evidence = vars(stream).values()
        write(f"INSERT INTO streams VALUES ({', '.join('?' * len(fields))})", fields)
        n = write("SELECT count(*) FROM evidence WHERE stream = ?", [stream.name]).fetchone()[0]
        new = [(stream.name, *x) for x in evidence[n:]]
        write_all("INSERT INTO evidence VALUES (?, ?, ?, ?)", new)


def check_new(
    database: sqlite3.Connection, source: str, batches: Sequence[Batch], by: str | None
) -> None:
    """An error if batches of a file were counted before, or do not come after the last one.

    Args:
        database: where the state is kept.
        source: what errors call the file.
        batches: its batches.
        by: the column of their names; None if the file is one batch.
    """
    counted = dict(database.execute("SELECT id, name FROM batches"))
    keys = {key for (key,) in database.execute("SELECT key FROM batches")}
    if by is not None and counted:
        last = max(counted.values(), key=sort_key)
        old = [x for x in batches if sort_key(x.name) <= sort_key(last)]
        if old:
            new, late = batches[len(old) :], [x.name for x in old if x.key not in keys]
            hint = f"from {new[0].name} on they are new" if new else "none is new"
            hint += f"; {late[0]} was never counted and is late" if late else ""
            restart = hint_of_restart(last, old[0].name)
            raise ValueError(
                f"{source}, column {by}: expected values after {last}, the last one that was "
                f"counted, got {old[0].name}; {hint}; --again counts all rows{restart}."
            )
    for batch in batches:
        rows = f"{len(batch.hashes)} rows{'' if by is None else f' of {batch.name}'}"
        select = f"SELECT {_ORIGIN} FROM batches WHERE key = ?"
        for (origin,) in database.execute(select, [batch.key]):
            raise ValueError(
                f"{source}: the {rows} were counted before, from {origin}; --again counts them."
            )
        # Of a log that has grown, they are most of what it was.
        for n, n_before, origin in database.execute(
            f"SELECT count(*) AS n, n_rows, {_ORIGIN} FROM rows JOIN batches ON id = batch "
            "WHERE hash IN (SELECT value FROM json_each(?)) GROUP BY id "
            "HAVING n >= ? AND 2 * n > min(?, n_rows) ORDER BY n DESC",
            [json.dumps(batch.telling), MIN_ROWS, len(batch.telling)],
        ):
            raise ValueError(
                f"{source}: {n} of the {rows} match the {n_before} rows already counted, "
                f"from {origin}; give only new rows, or --again counts all of them."
            )
