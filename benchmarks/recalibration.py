"""Which recalibration is best, and which passes a test: of labels, numbers and groups.

    python -m benchmarks.recalibration                  # all; half an hour on an idle machine
    python -m benchmarks.recalibration --quick          # two cases, to see that all run
    python -m benchmarks.recalibration --only numbers   # one chapter; none: the page, again
    python -m benchmarks.recalibration --missing        # what old results lack, such as peers

Models of scikit-learn are fitted to 40 % of the rows of data sets, maps to 30 %, and the rest
judges them.  The packages probmetrics, crepes, MAPIE and mcgrad are peers where they are installed,
and ``CALIBJAX_REFERENCE`` may point to a folder whose ``data/`` has predictions of CIFAR, of the
flu hub, and of recidivism.  It writes `RECALIBRATION.md` and `recalibration.json` into
`benchmarks/`, or into the folder ``--output``.
"""

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from sklearn import datasets
from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import calibjax as cj
from benchmarks import recalibration_groups, recalibration_numbers
from benchmarks.harness import ROOT

OF_MANY = ("identity", "temperature", "vector", "svs", "sms", "beta", "spline", "isotonic", "auto")
OF_TWO = ("identity", "temperature", "vector", "svs", "beta", "spline", "isotonic", "venn_abers")
OF_TWO += ("auto",)
#: The names of probmetrics for what both have.
PEERS = {"temperature": "temp-scaling", "svs": "svs", "sms": "sms", "vector": "vector"}
PEERS |= {"beta": "beta", "isotonic": "isotonic"}
#: The methods whose maps are tested.
TESTED = {"identity", "temperature", "svs", "sms", "beta", "spline", "isotonic", "auto"}
N_TEST, N_RESAMPLES = 1000, 199
CHAPTERS = ("cifar", "groups", "numbers", "seconds", "pairs")

show = functools.partial(print, flush=True)


def _scaled(model: ClassifierMixin) -> Any:
    return make_pipeline(StandardScaler(), model)


MODELS: dict[str, Callable[[], Any]] = {
    "naive Bayes": GaussianNB,
    "forest": lambda: RandomForestClassifier(60, random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(max_iter=60, random_state=0),
    "network": lambda: _scaled(MLPClassifier((50,), max_iter=150, random_state=0)),
    "SVC": lambda: _scaled(SVC(probability=True, random_state=0)),
    "neighbours": lambda: _scaled(KNeighborsClassifier(10)),
    "logistic": lambda: _scaled(LogisticRegression(max_iter=300)),
}


def data_sets() -> dict[str, tuple[Callable[[], tuple], tuple[str, ...]]]:
    """Features and labels, and the models that are fitted to them."""
    made = functools.partial(datasets.make_classification, return_X_y=True)

    def diabetes():
        features, disease = datasets.load_diabetes(return_X_y=True)
        return features, (disease > 140).astype(int)

    return {
        "made, 5 classes": (
            lambda: made(4000, 20, n_informative=8, n_classes=5, flip_y=0.1, random_state=1),
            ("naive Bayes", "forest", "network", "boosting"),
        ),
        "breast cancer": (
            lambda: datasets.load_breast_cancer(return_X_y=True),
            ("naive Bayes", "forest"),
        ),
        "digits": (
            lambda: datasets.load_digits(return_X_y=True),
            ("naive Bayes", "logistic", "forest"),
        ),
        "made, 2 classes": (
            lambda: made(4000, 20, n_informative=6, flip_y=0.1, random_state=3),
            ("naive Bayes", "forest", "boosting", "SVC"),
        ),
        "shells, 4 classes": (
            lambda: datasets.make_gaussian_quantiles(
                n_samples=4000, n_features=6, n_classes=4, random_state=6
            ),
            ("naive Bayes", "boosting", "neighbours"),
        ),
        "moons": (
            lambda: datasets.make_moons(3000, noise=0.4, random_state=5),
            ("naive Bayes", "network", "neighbours"),
        ),
        "made, 10 classes": (
            lambda: made(
                5000,
                30,
                n_informative=15,
                n_classes=10,
                n_clusters_per_class=1,
                flip_y=0.05,
                class_sep=1.2,
                random_state=2,
            ),
            ("naive Bayes", "forest", "network", "neighbours"),
        ),
        "made, 7 % events": (
            lambda: made(5000, 20, n_informative=6, weights=[0.93], flip_y=0.05, random_state=4),
            ("naive Bayes", "network", "forest"),
        ),
        "diabetes": (diabetes, ("naive Bayes", "forest")),
    }


N_PAIRS = sum(len(models) for _, models in data_sets().values())


def pairs() -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    """A name, and probabilities and labels that fit maps, and that judge them."""
    for name, (load, models) in data_sets().items():
        x, y = load()
        x, others, y, labels = train_test_split(x, y, test_size=0.6, random_state=0, stratify=y)
        fit_x, judge_x, fit_y, judge_y = train_test_split(
            others, labels, test_size=0.5, random_state=1, stratify=labels
        )
        for model in models:
            fitted = MODELS[model]().fit(x, y)
            p, q = (fitted.predict_proba(z).astype(np.float32) for z in (fit_x, judge_x))
            yield f"{name}, {model}", (p, fit_y, q, judge_y)


def cifar() -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    folder = os.environ.get("CALIBJAX_REFERENCE")
    if not folder:
        return
    file = np.load(pathlib.Path(folder) / "data" / "cifar10_predictions.npz")
    labels = file["labels"].astype(int)
    for model in ("densenet121", "resnet18"):
        p = file[model].astype(np.float32)
        yield f"CIFAR 10, {model}", (p[:5000], labels[:5000], p[5000:], labels[5000:])
    file = np.load(pathlib.Path(folder) / "data" / "cifar100_densenet_bc_100.npz")
    p, labels = file["predictions"], file["labels"].astype(int)
    yield "CIFAR 100, DenseNet-BC", (p[:5000], labels[:5000], p[5000:], labels[5000:])


def losses(probs: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """The mean log loss and the Brier score."""
    probs = np.asarray(probs, float)
    of_label = np.maximum(probs[np.arange(len(labels)), labels], 1e-38)
    gaps = probs - np.eye(probs.shape[1])[labels]
    return float(-np.mean(np.log(of_label))), float(np.mean(np.sum(gaps**2, axis=1)))


def judged(data: tuple[np.ndarray, ...], methods: tuple[str, ...], tested: bool) -> dict:
    """Of each method the losses and the p-value of rows that did not fit it, and its seconds."""
    p, fit_y, q, judge_y = data
    found = {}
    for method in methods:
        start = time.perf_counter()
        recalibrator = cj.fit_recalibrator(cj.Categorical(p), fit_y, method)
        seconds = time.perf_counter() - start
        recalibrated = recalibrator(cj.Categorical(q))
        log, brier = losses(recalibrated.label_probabilities(), judge_y)
        found[method] = {"log": log, "brier": brier, "seconds": seconds}
        found[method] |= {"words": recalibrator.fit.description, "method": recalibrator.fit.method}
        if tested and method in TESTED:
            rows = recalibrated[:N_TEST], judge_y[:N_TEST]
            test = cj.calibration_test(jax.random.key(0), *rows, n_resamples=N_RESAMPLES)
            found[method]["p"] = float(test.pvalue)
    return found


def calibrator(method: str) -> Any:
    """The same method of probmetrics."""
    from probmetrics.calibrators import VectorScalingCalibrator, get_calibrator

    return VectorScalingCalibrator() if method == "vector" else get_calibrator(PEERS[method])


def peer(data: tuple[np.ndarray, ...], methods: tuple[str, ...]) -> dict:
    """The log loss and the seconds of the same methods in probmetrics."""
    p, fit_y, q, judge_y = data
    found = {}
    for method in methods:
        if method not in PEERS or (method == "beta" and p.shape[1] > 2):
            continue
        try:
            fitted = calibrator(method)
            start = time.perf_counter()
            fitted.fit(p.astype(np.float64), fit_y)
            seconds = time.perf_counter() - start
            recalibrated = np.asarray(fitted.predict_proba(q.astype(np.float64)))
        except Exception as error:  # whatever a peer cannot do is said in the table
            show("probmetrics", method, type(error).__name__, str(error)[:100])
            continue
        found[method] = {"log": losses(recalibrated, judge_y)[0], "seconds": seconds}
    return found


def timed(m: int, has_peer: bool) -> dict[str, dict[str, dict[str, float]]]:
    """CPU seconds of fits to 5000 rows of m classes: the first one, and the median of three more.

    Each fit of ours comes before that of the peer, so that both have the same neighbours.
    """
    rng = np.random.default_rng(m)
    logits = 2 * rng.normal(size=(5000, m))
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    powers = np.exp(1.6 * logits + 0.3 * rng.normal(size=m))
    p = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    of_many = "temperature", "svs", "sms", "vector", "isotonic"
    of_two = "temperature", "svs", "beta", "isotonic"
    found: dict[str, dict[str, dict[str, float]]] = {"ours": {}, "peer": {}}
    for method in of_two if m == 2 else of_many:
        fits = {"ours": functools.partial(cj.fit_recalibrator, cj.Categorical(p), labels, method)}
        if has_peer:
            fits["peer"] = functools.partial(calibrator(method).fit, p.astype(np.float64), labels)
        seconds: dict[str, list[float]] = {who: [] for who in fits}
        for _ in range(4):
            for who, fit in fits.items():
                start = time.process_time()
                fit()
                seconds[who].append(time.process_time() - start)
        for who, (first, *warm) in seconds.items():
            found[who][method] = {"first": first, "warm": float(np.median(warm))}
    return found


def win_rates(results: dict, score: str) -> dict[str, float]:
    """The share of other methods that each one beats, in the mean over pairs; a tie is a half."""
    rates: dict[str, list[float]] = {}
    for found in results.values():
        for method, own in found.items():
            gaps = np.array([own[score] - x[score] for name, x in found.items() if name != method])
            rates.setdefault(method, []).append(float(np.mean(np.where(gaps == 0, 0.5, gaps < 0))))
    return {method: float(np.mean(x)) for method, x in rates.items()}


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, ["---"] * len(header), *rows])


def page(results: dict) -> str:
    parts = [
        "# Recalibration",
        "Made by `python -m benchmarks.recalibration`. Models of scikit-learn are fitted to 40 % "
        "of the rows of each data set, and maps to 30 %; the rest is the test set. Cases may be "
        "from several runs: `--missing` continues the last.",
    ]
    n_pairs = len(results.get("pairs", {}))
    if 0 < n_pairs < N_PAIRS:
        parts.append(f"Of {N_PAIRS} pairs of data sets and models of labels it has {n_pairs} yet.")
    for two, title in ((False, "Many classes"), (True, "Two classes")):
        found = {
            name: x["ours"]
            for name, x in results.get("pairs", {}).items()
            if ("venn_abers" in x["ours"]) == two
        }
        if not found:
            continue
        log, brier = (win_rates(found, score) for score in ("log", "brier"))
        rows = []
        for method in sorted(log, key=lambda x: -log[x]):
            tested = [x[method]["p"] > 0.05 for x in found.values() if "p" in x[method]]
            mean = np.mean([x[method]["log"] for x in found.values()])
            passed = f"{sum(tested)} of {len(tested)}" if tested else ""
            cells = f"{log[method]:.3f}", f"{brier[method]:.3f}", f"{mean:.4f}", passed
            rows.append([f"`{method}`", *cells])
        parts.append(
            f"## {title}\n\n{len(found)} pairs of a data set and a model. The first two columns "
            "are the mean share of the other methods that a method beats. The last is the number "
            f"of pairs that `calibration_test` does not reject at 0.05, on at most {N_TEST} test "
            "rows. The map is fitted to about as many rows, so the test also detects the random "
            "error of the fit."
        )
        header = ["method", "beaten, log loss", "beaten, Brier", "mean log loss", "passes a test"]
        parts.append(table(header, rows))
    gaps: dict[str, list[float]] = {}
    for x in [*results.get("pairs", {}).values(), *results.get("cifar", {}).values()]:
        for method, theirs in x["peer"].items():
            gaps.setdefault(method, []).append(x["ours"][method]["log"] - theirs["log"])
    if gaps:
        rows = [
            [f"`{m}`", str(len(g)), f"{np.median(g):+.5f}", f"{min(g):+.5f}", f"{max(g):+.5f}"]
            for m, g in gaps.items()
        ]
        parts.append(
            "## Beside probmetrics\n\nHeld-out log loss, ours minus theirs. The treatment of "
            "observed targets with predicted probability 0 differs."
        )
        parts.append(table(["method", "pairs", "median", "least", "largest"], rows))
    if results.get("cifar"):
        rows = []
        for name, x in results["cifar"].items():
            for method, own in x["ours"].items():
                theirs = x["peer"].get(method)
                cells = f"{own['log']:.5f}", f"{theirs['log']:.5f}" if theirs else ""
                rows.append([name, f"`{method}`", *cells])
        parts.append("## CIFAR\n\nMaps are fitted to 5000 rows and evaluated on 5000 others.")
        header = ["predictions", "method", "log loss", "probmetrics"]
        parts.append(table(header, rows))
    if results.get("numbers"):
        parts.append(recalibration_numbers.part_of_page(results["numbers"], table))
    if results.get("groups"):
        parts.append(recalibration_groups.part_of_page(results["groups"], table))
    if results.get("seconds"):
        rows = []
        for m, x in results["seconds"].items():
            for method, own in x["ours"].items():
                theirs = x["peer"].get(method)
                cells = [f"{own['first']:.3f}", f"{own['warm']:.3f}"]
                if theirs:
                    cells += [f"{theirs['first']:.3f}", f"{theirs['warm']:.3f}"]
                    cells += [f"{own[k] / theirs[k]:.2f}" for k in ("first", "warm")]
                rows.append([m, f"`{method}`", *cells, *[""] * (6 - len(cells))])
        parts.append(
            "## Seconds\n\nCPU seconds of fits to 5000 rows of m classes, in one process, with "
            "both packages in turn: the first fit, which may compile and import; the median of "
            "three more; and ours divided by theirs. Below 1, ours is faster."
        )
        both = [f"{who}{x}" for who in ("", "probmetrics, ", "ratio, ") for x in ("first", "warm")]
        parts.append(table(["m", "method", *both], rows))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="*", choices=CHAPTERS)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = ROOT / ("build/benchmarks" if options.quick else "benchmarks")
    folder = options.output or folder
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "recalibration.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    has_peer = importlib.util.find_spec("probmetrics") is not None
    chapters = CHAPTERS if options.only is None else options.only

    def write() -> None:
        file.write_text(json.dumps(results, indent=1))
        (folder / "RECALIBRATION.md").write_text(page(results))

    def keep(chapter: str, name: str, found: dict) -> None:
        results.setdefault(chapter, {})[name] = found
        show(chapter, name, time.strftime("%H:%M"))
        write()

    def old(chapter: str, name: str) -> dict:
        return results.get(chapter, {}).get(name, {}) if options.missing else {}

    write()
    for chapter, part in (("groups", recalibration_groups), ("numbers", recalibration_numbers)):
        if chapter not in chapters:
            continue
        for k, (name, case) in enumerate(part.cases()):
            if options.quick and k == 2:
                break
            known = old(chapter, name)
            if (new := part.results_of(case, known)) != known:
                keep(chapter, name, new)
    for chapter, source in (("cifar", cifar), ("pairs", pairs)):
        if chapter not in chapters:
            continue
        for k, (name, data) in enumerate(source()):
            if options.quick and k == 2:
                break
            methods = OF_TWO if data[0].shape[1] == 2 else OF_MANY
            known = old(chapter, name)
            ours = known.get("ours") or judged(data, methods, tested=chapter == "pairs")
            theirs = known.get("peer") or (peer(data, methods) if has_peer else {})
            if known != (new := {"ours": ours, "peer": theirs}):
                keep(chapter, name, new)
    if "seconds" in chapters:
        for m in (10,) if options.quick else (2, 10, 100):
            if old("seconds", str(m)):
                continue
            keep("seconds", str(m), timed(m, has_peer))


if __name__ == "__main__":
    main()
