"""Files of all formats, read by Polars, which only this part of the subpackage needs."""

from importlib.util import find_spec

if find_spec("polars") is None:
    raise ModuleNotFoundError("files need polars: pip install 'calibjax[frames]'", name="polars")

from calibjax.frames.files._delimited import Text
from calibjax.frames.files._files import read_files, rows_where
from calibjax.frames.files._json import lines_with
