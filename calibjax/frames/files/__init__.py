"""Files of all formats, read by Polars, which only this part of the room needs."""

from calibjax.frames.files._delimited import Text
from calibjax.frames.files._json import ANSWERS, PROBS, PROBS_PER_LETTER, TARGET, lines_with
from calibjax.frames.files._read_files import read_tables
from calibjax.frames.files._table import FileTable
