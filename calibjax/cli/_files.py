"""Files of all formats, and standard input, as tables."""

import gzip
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import polars as pl

from calibjax.cli._delimited import read_delimited
from calibjax.cli._json import read_json, read_json_lines
from calibjax.cli._table import FileTable
from calibjax.cli._terminal import BadInput

ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".npz")
# What stands for standard input on a command line.
_STANDARD_INPUT = Path("-")
_GZIP = b"\x1f\x8b"


def read_tables(
    paths: Sequence[Path], separator: str | None = None, decimal: str | None = None
) -> FileTable:
    """The rows of one file after those of the other; all have the columns of the first."""
    return FileTable.joined([_read(path, separator, decimal) for path in paths])


def _read(path: Path, separator: str | None, decimal: str | None) -> FileTable:
    if path == _STANDARD_INPUT:
        path, content = Path("standard input"), sys.stdin.buffer.read()
        content = gzip.decompress(content) if content.startswith(_GZIP) else content
        ending = _ending_of(content)
    else:
        packed = path.suffix.lower() == ".gz"
        ending = Path(path.stem if packed else path).suffix.lower()
        if ending not in ENDINGS:
            raise BadInput(
                f"{path}: expected a file that ends in {', '.join(ENDINGS)}, or these and .gz."
            )
        if not path.is_file():
            raise BadInput(f"{path}: there is no such file.")
        try:
            content = path.read_bytes()
            if packed or content.startswith(_GZIP):
                content = gzip.decompress(content)
        except (EOFError, gzip.BadGzipFile) as error:
            raise BadInput(f"{path}: this is no .gz file that can be read: {error}.") from None
    try:
        match ending:
            case ".jsonl":
                return read_json_lines(path, content)
            case ".json":
                return read_json(path, content)
            case ".parquet":
                frame = pl.read_parquet(io.BytesIO(content))
                return FileTable(path, {x.name: x for x in frame.iter_columns()})
            case ".npz":
                file = np.load(io.BytesIO(content), allow_pickle=False)
                if isinstance(file, np.ndarray):
                    raise ValueError("it holds one array without a name, as of numpy.save")
                with file:
                    arrays = {name: np.atleast_1d(file[name]) for name in file.files}
                bad = [name for name, x in arrays.items() if x.dtype.kind not in "biufUSMm"]
                if bad:
                    kind = arrays[bad[0]].dtype
                    raise ValueError(f"the array {bad[0]} has the dtype {kind}")
                return FileTable(path, {k: pl.Series(k, x) for k, x in arrays.items()})
            case _:
                tabs = "\t" if ending == ".tsv" else None
                return read_delimited(path, content, separator or tabs, decimal)
    except (pl.exceptions.PolarsError, BadZipFile, EOFError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise BadInput(f"{path}: this is no {ending} file that can be read: {reason}.") from error


def _ending_of(content: bytes) -> str:
    """The format, by the first bytes; a text that is no JSON is CSV."""
    start = content.lstrip()[:4]
    known = {b"PAR1": ".parquet", b"PK": ".npz", b"{": ".jsonl", b"[": ".json"}
    return next((ending for first, ending in known.items() if start.startswith(first)), ".csv")
