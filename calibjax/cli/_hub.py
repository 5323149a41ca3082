"""The command `calibjax hub`."""

import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from calibjax._base.text import listed, working
from calibjax.cli._command import AsJson, Level, Seed, as_text, echo, names_of_list, with_options
from calibjax.cli._evaluate import show


@with_options(
    target_data="Observations: oracle output or time series; a file or a folder.",
    as_of="Date: use observations as they were known then (column as_of). Default: the latest.",
    target="Target to test, a value of the column target, if there are several.",
    output_type="Output type to test, if there are several: quantile, sample, pmf or cdf.",
    ordered="Categories of pmf in order, such as low,moderate,high.",
    model="Evaluate only this model, and print what `calibjax evaluate` prints.",
    reference="Model that all others are compared with. Default: the first.",
    segments="With --model: test all segments defined by columns such as location,horizon.",
    by="Columns such as horizon,location: also print results for each combination of their values, "
    "with adjusted p-values.",
    html="With --model: write an HTML report to this file.",
)
def hub(
    model_output: Annotated[
        Path, typer.Argument(help="Folder model-output of the hub, or one file of forecasts.")
    ],
    target_data: Path,
    as_of: str | None = None,
    target: str | None = None,
    output_type: str | None = None,
    ordered: str | None = None,
    sort_quantiles: bool = False,
    model: str | None = None,
    reference: str | None = None,
    segments: str | None = None,
    by: str | None = None,
    html: Path | None = None,
    as_json: AsJson = False,
    level: Level = 0.05,
    seed: Seed = 0,
) -> bool:
    """Test and compare the models of a forecast hub.

    Files must have the format of the hubverse.  Forecasts are joined with observations by all
    columns that both have.  Forecasts for days closer together than the largest lead may depend on
    each other; p-values account for this.  The exit status is 1 if a model is rejected.

    \b
    Examples:
      calibjax hub model-output --target-data target-data/oracle-output.csv --by horizon
      calibjax hub model-output --target-data target-data/time-series.csv --model Flu-ensemble \\
          --segments location,horizon --html report.html
    """
    import jax

    from calibjax.evaluation import evaluate_data
    from calibjax.hub import hub_table, read_hub

    if model is None and any(x is not None for x in (segments, html)):
        raise ValueError("--segments and --html can be used only together with --model.")
    with working("Reading"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        read = read_hub(
            model_output,
            target_data,
            target=target,
            output_type=output_type,
            ordered=names_of_list(ordered) or None,
            sort=sort_quantiles,
            as_of=as_of,
        )
    for warning in warned:
        typer.echo(str(warning.message), err=True)
    if model is not None and model not in read:
        raise ValueError(f"--model must be one of {listed(list(read))}, got {model}.")
    if model is None:
        with working(f"Testing {len(read)} models") as now:
            key, of_groups = jax.random.key(seed), names_of_list(by)
            table = hub_table(key, read, reference=reference, by=of_groups, on_progress=now)
        echo(as_text(table.to_dict()) if as_json else table)
        return any(row["p"] <= level for row in table.models.values())
    data = read[model]

    def columns(option: str, names: str | None) -> dict[str, np.ndarray] | None:
        for name in names_of_list(names):
            if name not in data.groups:
                known = listed(list(data.groups))
                raise ValueError(f"{option}: column {name} not found, only {known}.")
        return {name: data.groups[name] for name in names_of_list(names)} or None

    groups, groups_of_table = columns("--segments", segments), columns("--by", by)
    with working(f"Testing {data.n} forecasts"):
        found = evaluate_data(data.replace(groups=groups), seed=seed, level=level)
        return show(found, groups_of_table, html, as_json)
