"""Files of all formats, read by Polars, which only this part of the room needs."""

from calibjax.frames.files._delimited import Text
from calibjax.frames.files._files import read_files, rows_where
from calibjax.frames.files._json import ANSWERS, PROBS, PROBS_PER_LETTER, TARGET, lines_with
