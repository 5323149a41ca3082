"""The command `calibjax compare`."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from calibjax._base.text import p_in_words, working
from calibjax.cli._command import AsJson, Columns, Level, Seed, as_text, echo, with_options


@with_options("clusters", "times", "horizon", event="Label of the event of --prob, such as rain.")
def compare(
    files: Annotated[list[Path], typer.Argument(help="One file for each model.")],
    columns: Columns,
    as_json: AsJson = False,
    level: Level = 0.05,
    seed: Seed = 0,
) -> bool:
    """Compare the calibration of several models.

    The files must have the same rows in the same order, and the same names of columns.  Prints the
    squared kernel calibration error (SKCE) of each model, and its difference to that of the first.
    The exit status is 1 if the first two models differ significantly.  If models answer the same
    questions but targets differ, as with language models, pass the question as --cluster.

    \b
    Examples:
      calibjax compare old.csv new.csv --probs 'p_*' --target label
      calibjax compare a.jsonl b.jsonl --prob confidence --percent --target correct --cluster id
      calibjax compare old.csv new.csv --mean mu --sd sigma --target mw --time day --horizon 4
    """
    import jax

    from calibjax.cli._columns import on_common_rows, with_same_targets
    from calibjax.evaluation import columns_of_rows, keys_of, notes_on_independence
    from calibjax.intervals import compare_calibration

    if len(files) < 2:
        raise ValueError(f"{files[0]}: expected at least one more file to compare it with.")
    models = [columns.read(file) for file in files]
    first, *others = on_common_rows(models) if columns.drop_missing else models
    others = [with_same_targets(first, x, columns.given.get("clusters")) for x in others]
    data = columns.data(first)
    is_same = [np.array_equal(first.targets, other.targets) for other in others]
    both = zip(others, is_same, strict=True)
    compared = [x.predictions if same else columns.data(x) for x, same in both]
    with working(f"Comparing {len(files)} models on {len(first.targets)} rows"):
        result = compare_calibration(jax.random.key(seed), None, data, compared)
        beside = columns_of_rows(first, columns.event)
        notes = notes_on_independence(keys_of(seed).neighbours, data, beside, first.table.option)
        interval = result.confidence_interval(1 - level)
    names, estimates = list(map(str, files)), np.asarray(result.estimates).tolist()
    values = [{"file": name, "skce": x} for name, x in zip(names, estimates, strict=True)]
    fields = interval.low, interval.high, result.difference, result.pvalue, result.pvalue <= level
    lists = (np.asarray(x).tolist() for x in fields)
    pairs: list[dict[str, Any]] = [
        {"first": names[0], "second": name, "difference": difference}
        | {"interval": [low, high], "pvalue": pvalue, "rejected": is_rejected}
        for name, low, high, difference, pvalue, is_rejected in zip(names[1:], *lists, strict=True)
    ]
    if as_json:
        found = {"method": result.method, "level": level, "models": values, "pairs": pairs}
        echo(as_text(found | {"notes": notes}))
    else:
        lines = [f"{x['file']}: SKCE {x['skce']:.4g}" for x in values]
        lines += [_sentence(pair, result.deviations.shape[-1]) for pair in pairs]
        lines.append(f"({result.method}; {100 * (1 - level):g} % CI)")
        echo("\n".join([*lines, *notes]))
    return pairs[0]["rejected"]


def _sentence(pair: dict[str, Any], n_draws: int) -> str:
    first, second = pair["first"], pair["second"]
    low, high = pair["interval"]
    numbers = (
        f"{p_in_words(pair['pvalue'], n_draws, sides=2)}, first minus second file "
        f"{pair['difference']:.3g}, CI {low:.3g} to {high:.3g}"
    )
    if not pair["rejected"]:
        return f"No significant difference between {first} and {second} ({numbers})."
    better, worse = (first, second) if pair["difference"] < 0 else (second, first)
    return f"{better} is better calibrated than {worse} ({numbers})."
