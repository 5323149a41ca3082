"""The command `calibjax evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calibjax._base.text import plain
from calibjax.cli._command import (
    AsJson,
    Columns,
    Files,
    Level,
    Seed,
    as_text,
    echo,
    names_of_list,
    with_options,
)

if TYPE_CHECKING:
    from calibjax.evaluation import Evaluation
    from calibjax.segments import Groups


@with_options(
    *"survival censored weights clusters times horizon groups".split(),
    by="Columns such as region,lead: also print the measures of each combination of their values, "
    "with p-values adjusted for the number of combinations.",
)
def evaluate(
    files: Files,
    columns: Columns,
    above: Annotated[
        float | None,
        typer.Option(help="Threshold: evaluate the probability that numeric forecasts exceed it."),
    ] = None,
    by: str | None = None,
    order: Annotated[
        int, typer.Option(min=1, help="Maximum number of columns in a segment of --segments.")
    ] = 2,
    html: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write the table of --by to this CSV file.")
    ] = None,
    as_json: AsJson = False,
    level: Level = 0.05,
    seed: Seed = 0,
) -> bool:
    """Test whether a model is calibrated, and measure the error.

    The exit status is 1 if the p-value is at most the significance level, 2 after an error, else 0.

    \b
    Examples:
      calibjax evaluate preds.csv --probs 'p_*' --target label --html report.html
      calibjax evaluate rain.csv --prob p_rain --target rained
      calibjax evaluate heights.parquet --mean mu --sd sigma --target height
      calibjax evaluate log_lifetimes.csv --mean mu --sd sigma --target log_time --censored alive
      calibjax evaluate cox.csv --survival 'S_*' --target time --event died
      calibjax evaluate wind.csv --mean mu --sd sigma --target mw --time day --horizon 4
      calibjax evaluate demand.csv --quantiles 'q*' --target sold
      calibjax evaluate rain.csv --draws 'member_*' --target mm --above 1
      calibjax evaluate rain.csv --prob p_rain --target rained --segments station,month
      calibjax evaluate log.jsonl.gz --probs options --target answer --where "topic = 'history'"
    """
    from calibjax.evaluation import columns_of_rows, evaluate_data

    if table is not None and by is None:
        raise ValueError("--table writes the table of --by: pass --by COLUMN.")
    model = columns.read(*files)
    found = evaluate_data(
        columns.data(model),
        seed=seed,
        level=level,
        above=above,
        columns=columns_of_rows(model, columns.event),
        table=model.table,
        order=order,
    )
    return show(found, names_of_list(by) or None, html, as_json, table)


def show(
    found: "Evaluation",
    by: "Groups | list[str] | None",
    html: Path | None,
    as_json: bool,
    table: Path | None = None,
) -> bool:
    """Prints an evaluation, each part once it is known, and its report; whether it rejects."""
    groups = None if by is None else found.by(by)
    for block in () if as_json else found.blocks():
        echo(block)
    if groups is not None and table is not None:
        import polars as pl

        pl.DataFrame(groups.to_dict(), strict=False).write_csv(table)
    if as_json:
        saved = found.to_dict()
        if groups is not None:
            pooled = groups.pooled and groups.pooled._asdict()
            saved |= {"by": groups.rows(), "pooled": pooled}
        echo(as_text(plain(saved)))
    elif groups is not None:
        echo(f"\n{groups}")
    if html is not None:
        found.to_html(html, by=groups)
    if found.why_not_tested is not None:
        raise ValueError(f"Calibration {found.why_not_tested}.")
    return found.rejected
