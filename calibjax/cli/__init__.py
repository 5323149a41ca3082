"""The command line: from a file of predictions to a verdict and an exit status."""

from calibjax.cli._app import app
