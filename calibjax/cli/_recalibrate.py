"""The command `calibjax recalibrate`."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from calibjax._base.text import working
from calibjax._data.column_options import option_name
from calibjax.cli._command import AsJson, Columns, Seed, as_text, echo, names_of_list, with_options

# Options that say what fits a new map.
_OF_FITS = "target", "event", "clusters", "times", "groups", "horizon"


@with_options(
    *"survival censored clusters times horizon groups".split(),
    method="Map to fit, such as temperature or pit_beta. Default: auto, a mixture of maps with the "
    "lowest held-out score; for --mean and --sd, shift_scale.",
    times="Column of numbers or dates: rows with the same or nearby values may depend on each "
    "other, and are in the same fold.",
    groups="Columns such as region,age: also correct segments defined by one or two of them. "
    "--apply needs the same columns.",
    covariates="Numeric columns such as lead,load, for numeric forecasts: the map uses them if "
    "this lowers the held-out score. --apply needs the same columns.",
    lower="Lower bound of targets, such as 0, for quantiles and draws: recalibrated values below "
    "it are set to it.",
    apply="File of predictions to recalibrate. Needs --out.",
    out="Write the recalibrated file here, in the format of --apply.",
    save="Write the recalibrator to this .json file.",
    load="Apply this recalibrator, written by --save, in place of fitting one to FILE.",
)
def recalibrate(
    columns: Columns,
    file: Annotated[
        Path | None,
        typer.Argument(help="Predictions and known outcomes, not used to train the model."),
    ] = None,
    method: str | None = None,
    covariates: str | None = None,
    lower: float | None = None,
    apply: Path | None = None,
    out: Path | None = None,
    save: Path | None = None,
    load: Path | None = None,
    as_json: AsJson = False,
    seed: Seed = 0,
) -> None:
    """Correct predictions with a map fitted to known outcomes.

    Prints the map and its cross-validated performance: each of five folds is recalibrated by a map
    fitted to the other four.  Folds are random.  With --cluster, each cluster is in one fold.  For
    numeric forecasts, folds are blocks of consecutive rows, or with --time of consecutive times.
    P-values and intervals account for --cluster, --time and --horizon.  The map that is saved and
    applied is fitted to all rows.

    The file --out has the rows and columns of --apply; only predictions differ.  If --load is used
    and columns of predictions have new names, give these in the order of the fit, such as with
    --probs.  A row without a prediction is an error; with --drop-missing it stays unchanged.

    \b
    Examples:
      calibjax recalibrate fit.csv --probs 'p_*' --target y --apply new.csv --out new_calibrated.csv
      calibjax recalibrate fit.csv --prob p_rain --target rained --cluster station --save map.json
      calibjax recalibrate fit.csv --quantiles 'q*' --target sold --time week --segments shop
      calibjax recalibrate --load map.json --apply today.csv --out today_calibrated.csv
    """
    from calibjax._base.files import replacing
    from calibjax._data.distribution import Labels
    from calibjax.cli import _recalibrated_files as files
    from calibjax.cli._held_out import held_out, in_words
    from calibjax.recalibration import fit_recalibrator

    _check_files(file, apply, out, save, load)
    if load is None:
        assert file is not None
        names = columns.groups, names_of_list(covariates)
        model, said = columns.read(file, others=names[1]), None
        if names[1] and isinstance(model.predictions, Labels):
            raise ValueError("--covariates is for forecasts of numbers, got classes.")
        fitted = files.Fitted(file, model.columns, model.target)
        method_of_fit = files.method_of(model.columns, method, bool(names[1]))
        beside = files.columns_beside(model.table, *names, is_fit=True)
        data = columns.data(model)
    else:
        of_fits = {name: columns.given.get(name) for name in _OF_FITS}
        of_fits |= {"method": method, "covariates": covariates, "lower": lower, "save": save}
        for name, value in of_fits.items():
            if value is not None:
                raise ValueError(f"{option_name(name)} cannot be used together with --load.")
        recalibrator, fitted = files.read_map(load)
        names, said = (recalibrator.names_of_groups, [*recalibrator.fit.covariates]), columns
    # Errors of the file are reported before long work.
    new = None if apply is None else files.NewRows.read(apply, columns, fitted, said, names)
    cross_validated = None
    if load is None:
        with working(f"Fitting maps to {data.n} rows"):
            recalibrator = fit_recalibrator(data, None, method_of_fit, lower=lower, **beside)
            cross_validated = held_out(data, method_of_fit, beside, lower, seed)
    written = []
    with ExitStack() as stack:
        if new is not None and out is not None:
            content, (words, *notes) = new.recalibrated(recalibrator)
            stack.enter_context(replacing(out, content))
            written += [f"{out}: {words}", *notes]
        if save is not None:
            stack.enter_context(replacing(save, files.map_as_file(recalibrator, fitted)))
            written.append(f"{save}: the map, fitted to all rows.")
        if as_json:
            fields = "method", "description", "converged", "n_rows", "n_zero_probability"
            found = {name: getattr(recalibrator.fit, name) for name in fields}
            found |= {"losses": dict(recalibrator.fit.losses), "held_out": cross_validated}
            echo(as_text(found))
        else:
            blocks = [str(recalibrator)]
            if cross_validated is not None:
                blocks.append(in_words(cross_validated))
            elif load is None:
                blocks.append("No cross-validation: fewer than 3 clusters or times.")
            echo("\n".join([*blocks, *written]))


def _check_files(
    file: Path | None, apply: Path | None, out: Path | None, save: Path | None, load: Path | None
) -> None:
    from calibjax.cli._recalibrated_files import WRITTEN

    if (file is None) == (load is None):
        got = "neither" if file is None else "both"
        raise ValueError(f"A file of rows must be given, or --load with a saved map, got {got}.")
    if (apply is None) != (out is None):
        raise ValueError("--apply and --out can be used only together.")
    if load is not None and apply is None:
        raise ValueError("--load needs --apply and --out, the file to recalibrate and the new one.")
    if save is not None and save.suffix != ".json":
        raise ValueError(f"{save}: expected a file that ends in .json.")
    if apply is not None and apply.suffix.lower() not in WRITTEN:
        raise ValueError(f"{apply}: expected a file that ends in {', '.join(WRITTEN)}.")
    if out is not None and apply is not None and out.suffix.lower() != apply.suffix.lower():
        raise ValueError(f"{out}: expected a file that ends in {apply.suffix}, as {apply} does.")
    read = [path.resolve() for path in (file, apply, load) if path is not None]
    for path in (out, save):
        if path is not None and path.resolve() in read:
            raise ValueError(f"{path}: this file is read, and must not be replaced.")
