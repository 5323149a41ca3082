"""The file of `calibjax monitor`: a database of SQLite, in which each call is one transaction."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from calibjax.cli._batches import Batch
from calibjax.cli._monitor_state import AGREED, Evidence, MonitorState, Stream

# SQLite keeps both numbers in the head of the file; the version changes with what tables hold.
_APPLICATION, _VERSION = int.from_bytes(b"cjmo", "big"), 2
_TABLES = f"""
CREATE TABLE options (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batches (name TEXT NOT NULL, file TEXT NOT NULL, time TEXT NOT NULL,
    hashes BLOB NOT NULL);
CREATE TABLE streams (name TEXT UNIQUE, monitor BLOB NOT NULL, log_max REAL NOT NULL,
    changed_at INTEGER NOT NULL, alarm TEXT, alarm_row INTEGER, n_sharing INTEGER, impossible TEXT);
CREATE TABLE evidence (stream TEXT NOT NULL REFERENCES streams (name), batch TEXT NOT NULL,
    n_rows INTEGER NOT NULL, log_e_value REAL NOT NULL);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION}"""
# For how many seconds a call waits for others.
_PATIENCE = 300.0
_EXPECTED = "expected a --state, got"
_DAMAGED = f"{_EXPECTED} a damaged one; restore a copy of it, which keeps its evidence"


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database of a state, to which a block writes everything at its end, or nothing.

    Until then other calls for the same file wait.  SQLite undoes the writes of a killed call when
    the file is opened again.

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
                got = "another database; name another file"
                if found[0] == _APPLICATION and found[1] != _VERSION:
                    got = f"one of another version of calibjax, {found[1]} for {_VERSION}; go on "
                    got += "with that version, or name another file"
                raise sqlite3.DatabaseError(_DAMAGED if found[2] != "ok" else f"{_EXPECTED} {got}")
            yield database
            database.execute("COMMIT")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = str(error)
        if "not a database" in reason:
            reason = f"{_EXPECTED} a file that is not a database; name another file"
        elif "malformed" in reason or isinstance(error, UnicodeDecodeError):
            reason = _DAMAGED
        raise ValueError(
            f"{path}: {reason}. Nothing was counted, and the state is what it was before this call."
        ) from error


def read_state(database: sqlite3.Connection) -> tuple[MonitorState | None, list[Batch]]:
    """The state that a database holds, None before the first call, and all rows that it counted."""
    select = database.execute
    try:
        options = {x: json.loads(y) for x, y in select("SELECT name, value FROM options")}
        streams = [Stream(*row) for row in select("SELECT * FROM streams ORDER BY rowid")]
        by_name = {stream.name: stream for stream in streams}
        for name, *row in select("SELECT * FROM evidence ORDER BY rowid"):
            by_name[name].evidence.append(Evidence(*row))
        counted = [
            Batch(name, np.frombuffer(hashes, "<i8"), f"{file}{as_name} at {time}")
            for name, file, time, hashes in select("SELECT * FROM batches ORDER BY rowid")
            for as_name in ["" if name == file else f", as {name},"]
        ]
        n_rows = sum(len(x.hashes) for x in counted)
        state = MonitorState(options, streams) if options or streams or counted else None
        if state and (options.keys() != AGREED or n_rows != state.n_rows):
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        raise sqlite3.DatabaseError(_DAMAGED) from error
    return state, counted


def write_state(
    database: sqlite3.Connection, state: MonitorState, batches: Sequence[Batch], source: str
) -> None:
    """Writes a state after some more batches of a file into a database."""
    write, write_all = database.execute, database.executemany
    options = [(name, json.dumps(value)) for name, value in state.options.items()]
    write_all("INSERT OR REPLACE INTO options VALUES (?, ?)", options)
    time = datetime.now(UTC).isoformat(" ", "minutes")
    parts = [(x.name, source, time, x.hashes.tobytes()) for x in batches]
    write_all("INSERT INTO batches VALUES (?, ?, ?, ?)", parts)
    write("DELETE FROM streams")
    for stream in state.streams:
        *fields, evidence = vars(stream).values()
        write(f"INSERT INTO streams VALUES ({', '.join('?' * len(fields))})", fields)
        n = write("SELECT count(*) FROM evidence WHERE stream = ?", [stream.name]).fetchone()[0]
        new = [(stream.name, *x) for x in evidence[n:]]
        write_all("INSERT INTO evidence VALUES (?, ?, ?, ?)", new)
