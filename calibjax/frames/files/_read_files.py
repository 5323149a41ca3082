"""Files of all formats, and standard input, as tables."""

import gzip
import io
import sys
import zlib
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import polars as pl

from calibjax.frames.files._delimited import read_delimited
from calibjax.frames.files._json import read_json
from calibjax.frames.files._table import FileTable

ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow", ".npz")
# What stands for standard input on a command line.
_STANDARD_INPUT = Path("-")
_GZIP = b"\x1f\x8b"
# The format of what has no name, by its first bytes; a text that is no JSON is CSV.
_STARTS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"PK": ".npz", b"{": ".jsonl", b"[": ".json"}
# What is raised where a file is damaged, or of another format.
_UNREADABLE = (
    BadZipFile,
    EOFError,
    ValueError,
    gzip.BadGzipFile,
    pl.exceptions.PolarsError,
    zlib.error,
)


def read_tables(
    paths: Sequence[Path], separator: str | None = None, decimal: str | None = None
) -> FileTable:
    """The rows of one file after those of the other; all have the columns of the first."""
    return FileTable.joined([_read(path, separator, decimal) for path in paths])


def _read(path: Path, separator: str | None, decimal: str | None) -> FileTable:
    if path == _STANDARD_INPUT:
        path, content, ending = Path("standard input"), sys.stdin.buffer.read(), None
    else:
        ending = Path(path.stem if path.suffix.lower() == ".gz" else path).suffix.lower()
        if ending not in ENDINGS:
            raise ValueError(
                f"{path}: expected a file that ends in {', '.join(ENDINGS)}, or these and .gz."
            )
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file.")
        content = path.read_bytes()
    kind = ".gz"
    try:
        if path.suffix.lower() == kind or content.startswith(_GZIP):
            content = gzip.decompress(content)
        start = content.removeprefix(BOM_UTF8).lstrip()[:6]
        kind = ending or next((x for k, x in _STARTS.items() if start.startswith(k)), ".csv")
        match kind:
            case ".jsonl" | ".json":
                return read_json(path, content)
            case ".parquet":
                return FileTable(path, pl.read_parquet(io.BytesIO(content)).to_dict())
            case ".arrow":
                return FileTable(path, pl.read_ipc(io.BytesIO(content)).to_dict())
            case ".npz":
                return FileTable(path, _arrays(content))
            case _:
                tabs = "\t" if kind == ".tsv" else None
                return read_delimited(path, content, separator or tabs, decimal)
    except _UNREADABLE as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        if isinstance(error, UnicodeDecodeError):
            reason = "expected a text in UTF-8; save it as UTF-8"
        raise ValueError(f"{path}: this is no {kind} file that can be read: {reason}.") from error


def _arrays(content: bytes) -> dict[str, pl.Series]:
    """The arrays of an npz file."""
    file = np.load(io.BytesIO(content), allow_pickle=False)
    if isinstance(file, np.ndarray):
        raise ValueError("it holds one array without a name, as of numpy.save")
    with file:
        arrays = {name: np.atleast_1d(file[name]) for name in file.files}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufUSMm":
            raise ValueError(f"the array {name} has the dtype {array.dtype}")
    return {name: pl.Series(name, array) for name, array in arrays.items()}
