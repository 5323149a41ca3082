"""`!calibjax …` on the pages of this folder: the command in their process, without a terminal."""

import shlex
import warnings

from IPython import get_ipython
from IPython.utils.capture import capture_output
from typer.testing import CliRunner

from calibjax.cli import app


def system(command):
    with warnings.catch_warnings(), capture_output():  # a notebook shows what hides progress
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(app, shlex.split(command)[1:])
    print(result.output.strip())


get_ipython().system = system
