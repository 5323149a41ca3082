"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

_FORMATS = "a .csv, .tsv, .jsonl, .json, .parquet or .npz file, also with .gz; - is standard input"
File = Annotated[Path, typer.Argument(help=f"The predictions: {_FORMATS}.")]
Files = Annotated[
    list[Path],
    typer.Argument(help=f"The predictions: {_FORMATS}. Rows of several files are joined."),
]
Target = Annotated[
    str | None,
    typer.Option(
        help="The column of what was observed: the names of classes; if no class has such a name, "
        "numbers from 0 in the order of the columns; for other predictions real numbers."
    ),
]
Probs = Annotated[
    str | None,
    typer.Option(
        help="The columns of class probabilities, such as 'p_*': the * stands for the names of the "
        "classes. In an npz file also one array [n, m]."
    ),
]
Prob = Annotated[
    str | None,
    typer.Option(
        help="The column of the probability of an event, whose label is 1, true, yes, on or "
        "positive; --event says another one."
    ),
]
Event = Annotated[
    str | None,
    typer.Option(
        help="The label of the event of --prob, such as rain of labels rain and dry; with "
        "--survival the column that says whether there was an event."
    ),
]
Mean = Annotated[str | None, typer.Option(help="The column of means of normal predictions.")]
Sd = Annotated[str | None, typer.Option(help="The column of their standard deviations.")]
QuantileColumns = Annotated[
    str | None,
    typer.Option(
        help="The columns of predicted quantiles, such as 'q*': the * stands for the level, as in "
        "q0.1 or q10."
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        help="The levels of the quantiles, such as 0.1,0.5,0.9, if the columns do not name them."
    ),
]
SortQuantiles = Annotated[
    bool,
    typer.Option("--sort-quantiles", help="Sort the quantiles of each row, if they cross."),
]
Draws = Annotated[
    str | None, typer.Option(help="The columns of draws from each prediction, such as 'draw_*'.")
]
Survival = Annotated[
    str | None,
    typer.Option(
        help="The columns of survival curves, such as 'S_*': the * stands for the time. --target "
        "is then the time of an event or of censoring, and --event the column that says which."
    ),
]
By = Annotated[
    str | None,
    typer.Option(
        help="Columns such as region,lead: a table of the test of each group alone, with p-values "
        "adjusted for all groups."
    ),
]
Segments = Annotated[
    str | None,
    typer.Option(
        help="Columns such as region,lead,age: for whom is the model wrong? All segments of one or "
        "two of them are tested at once."
    ),
]
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Divide class probabilities by their sum.")
]
Separator = Annotated[
    str | None,
    typer.Option(help="What is between columns of text, such as ';' or tab, if it is not seen."),
]
Decimal = Annotated[
    str | None,
    typer.Option(help="What is before decimals, a point or a comma, if it is not seen."),
]
Where = Annotated[
    str | None,
    typer.Option(help="Only some rows, such as \"lead == 3 and region = 'north'\", in SQL."),
]
DropMissing = Annotated[
    bool,
    typer.Option(
        "--drop-missing", help="Leave out rows that miss a value of a column that is used."
    ),
]
Weight = Annotated[str | None, typer.Option(help="A column of how much each row counts.")]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="A column of names: rows of one cluster, such as a hospital, may depend on each other."
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        help="A column of numbers or dates: rows of one time may depend on each other, or with "
        "--horizon rows that are closer."
    ),
]
Horizon = Annotated[
    float | None,
    typer.Option(
        help="Rows that are closer may depend on each other: in units of --time, of dates in days."
    ),
]
Censored = Annotated[
    str | None,
    typer.Option(
        help="A column of truth values, for --mean: true if the target is only known to be larger."
    ),
]
Level = Annotated[float, typer.Option(help="How often chance alone may give the exit status 1.")]
Seed = Annotated[int, typer.Option(help="What all random numbers come from.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else.")]


def names_of_list(given: str | None) -> list[str]:
    """The names of a list such as "region,lead"."""
    return [name for name in map(str.strip, (given or "").split(",")) if name]
