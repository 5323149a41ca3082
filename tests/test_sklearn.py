"""Recalibrated estimators, scorers and displays of scikit-learn."""

import pickle

import jax
import numpy as np
import pandas as pd
import pytest
from messages import check_message
from scipy.special import expit
from sklearn import model_selection
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    QuantileRegressor,
    Ridge,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GroupKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import calibjax as cj
from calibjax.sklearn import (
    RecalibratedClassifier,
    RecalibratedRegressor,
    ReliabilityDisplay,
    _estimators,
    _metrics,
    calibration_pvalue_scorer,
    skce_scorer,
)

# Three digits, with names, of which every other row trains.
X, DIGITS = load_digits(n_class=3, return_X_y=True)
X = X[:, ::3]
Y = np.array(["zero", "one", "two"])[DIGITS]
TRAIN, NEW = slice(None, None, 2), slice(1, None, 2)
BAYES = GaussianNB(var_smoothing=1e-3)


def test_the_map_is_fitted_to_predictions_of_other_folds():
    found = RecalibratedClassifier(BAYES, method="svs", cv=3).fit(X[TRAIN], Y[TRAIN])
    assert found.classes_.tolist() == ["one", "two", "zero"] and found.n_features_in_ == X.shape[1]
    probs = cross_val_predict(BAYES, X[TRAIN], Y[TRAIN], cv=3, method="predict_proba")
    labels = np.searchsorted(found.classes_, Y[TRAIN])
    model = clone(BAYES).fit(X[TRAIN], Y[TRAIN])
    with jax.enable_x64(True):
        recalibrator = cj.fit_recalibrator(cj.Categorical(probs), labels, "svs")
        expected = recalibrator(cj.Categorical(model.predict_proba(X[NEW]))).probs
    np.testing.assert_allclose(found.predict_proba(X[NEW]), expected, rtol=1e-9)
    assert str(found.recalibrator_) == str(recalibrator)
    best = np.asarray(found.classes_)[np.argmax(expected, axis=1)]
    assert found.predict(X[NEW]).tolist() == best.tolist()
    losses = [log_loss(Y[NEW], x.predict_proba(X[NEW])) for x in (model, found)]
    assert losses[1] < losses[0]
    # Rows are recalibrated one by one.
    np.testing.assert_allclose(found.predict_proba(X[:1]), found.predict_proba(X)[:1], rtol=1e-9)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(X[NEW]), found.predict_proba(X[NEW]))


def test_a_trained_model_stays_as_it_is():
    model = clone(BAYES).fit(X[TRAIN], Y[TRAIN])
    two = np.flatnonzero(np.arange(len(Y)) % 2 & (Y != "two"))  # a class may not come
    found = RecalibratedClassifier(FrozenEstimator(model), method="temperature").fit(X[two], Y[two])
    assert found.estimator_.estimator is model and found.classes_.tolist() == ["one", "two", "zero"]
    labels = np.searchsorted(model.classes_, Y[two])
    with jax.enable_x64(True):
        p = cj.Categorical(model.predict_proba(X[two]))
        expected = cj.fit_recalibrator(p, labels, "temperature")(p).probs
    np.testing.assert_allclose(found.predict_proba(X[two]), expected, rtol=1e-9)


def test_weights_and_folds():
    weights = np.random.default_rng(0).uniform(0.5, 2, len(Y[TRAIN]))
    folds = list(GroupKFold(3).split(X[TRAIN], Y[TRAIN], np.arange(len(Y[TRAIN])) // 10))
    found = RecalibratedClassifier(BAYES, method="svs", cv=folds)
    found.fit(X[TRAIN], Y[TRAIN], sample_weight=weights)
    probs = np.zeros((len(weights), 3))
    for train, test in folds:
        model = clone(BAYES).fit(X[TRAIN][train], Y[TRAIN][train], sample_weight=weights[train])
        probs[test] = model.predict_proba(X[TRAIN][test])
    labels = np.searchsorted(found.classes_, Y[TRAIN])
    with jax.enable_x64(True):
        expected = cj.fit_recalibrator(cj.Categorical(probs), labels, "svs", weights=weights)
    assert str(found.recalibrator_) == str(expected)


def test_it_is_an_estimator_among_others():
    frame = pd.DataFrame(X, columns=[f"pixel {k}" for k in range(X.shape[1])])
    model = RecalibratedClassifier(
        make_pipeline(StandardScaler(), BAYES), method="temperature", cv=3
    )
    scores = cross_val_score(model, frame, Y, scoring="neg_log_loss", cv=StratifiedKFold(2))
    assert scores.shape == (2,) and np.all(np.isfinite(scores))
    assert model.get_params()["estimator__gaussiannb__var_smoothing"] == 1e-3


RNG = np.random.default_rng(1)
N = 300
Z = RNG.normal(size=(N, 2))
TARGETS = Z[:, 0] + RNG.exponential(size=N)  # its law is no normal one
LEVELS = (0.1, 0.5, 0.9)


def coverage(model, z, targets, share):
    low, high = model.predict_interval(z, share).T
    return np.mean((low <= targets) & (targets <= high))


REGRESSORS = {
    "number": LinearRegression(),
    "deviation": BayesianRidge(),
    "quantiles": QuantileRegressor(alpha=0.0, solver="highs"),
}


@pytest.mark.parametrize("kind", REGRESSORS)
def test_regressors(kind):
    half = N // 2
    model = RecalibratedRegressor(REGRESSORS[kind], levels=LEVELS, method="pit_isotonic", cv=3)
    model.fit(Z[:half], TARGETS[:half])
    assert len(model.estimators_) == (3 if kind == "quantiles" else 1)
    quantiles = model.predict_quantiles(Z[half:])
    assert quantiles.shape == (half, 3) and np.all(np.diff(quantiles, axis=1) > 0)
    for level, column in zip(LEVELS, quantiles.T, strict=True):
        deviation = np.sqrt(2 * level * (1 - level) / half)  # of the fit, and of new rows
        assert abs(np.mean(TARGETS[half:] <= column) - level) < 3 * deviation
    assert abs(coverage(model, Z[half:], TARGETS[half:], 0.8) - 0.8) < 3 * np.sqrt(0.32 / half)
    np.testing.assert_array_equal(model.predict(Z), model.predict_quantiles(Z, (0.5,))[:, 0])
    # The noise is skewed, and quantiles say so.
    lower, upper = np.diff(quantiles, axis=1).mean(axis=0)
    assert upper > 1.5 * lower


def test_maps_of_regressors_are_those_of_the_library():
    model = RecalibratedRegressor(BayesianRidge(), method="shift_scale", cv=2).fit(Z, TARGETS)
    mean, deviation = np.zeros((2, N))
    for train, test in (
        (np.arange(N) >= 150, np.arange(N) < 150),
        (np.arange(N) < 150, np.arange(N) >= 150),
    ):
        fit = BayesianRidge().fit(Z[train], TARGETS[train])
        mean[test], deviation[test] = fit.predict(Z[test], return_std=True)
    with jax.enable_x64(True):
        recalibrator = cj.fit_recalibrator(cj.Normal(mean, deviation), TARGETS, "shift_scale")
    assert str(model.recalibrator_) == str(recalibrator) and model.scale_ is None
    recalibrated = model.predict_distribution(Z)
    middle = BayesianRidge().fit(Z, TARGETS).predict(Z, return_std=True)
    expected = recalibrator(cj.Normal(*(np.float32(x) for x in middle))).quantile(0.9)
    np.testing.assert_allclose(recalibrated.quantile(0.9), expected, rtol=1e-5)
    found = model.predict_quantiles(Z, (0.9,))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["clusters", "times"])
def test_maps_of_regressors_know_groups_and_what_depends(name):
    units = np.random.default_rng(2).permutation(N) // 10
    shop = np.array(["a", None, "b"], object)[np.arange(N) % 3]
    targets = TARGETS + 2 * (np.arange(N) % 3)
    # The estimator does not see the shop.
    frame = pd.DataFrame({"x": Z[:, 0], "load": Z[:, 1], "shop": shop})
    line = make_pipeline(FunctionTransformer(lambda X: X[["x"]]), LinearRegression())
    model = RecalibratedRegressor(
        line, method="conditional", cv=3, groups=["shop"], covariates=["load"]
    ).fit(frame, targets, **{name: units})
    predicted = np.zeros(N)
    if name == "times":
        folds = [(units // 10 != k, units // 10 == k) for k in range(3)]
    else:
        folds = GroupKFold(3).split(Z, groups=units)
    for train, test in folds:
        predicted[test] = LinearRegression().fit(Z[train, :1], targets[train]).predict(Z[test, :1])
    beside = {"groups": {"shop": shop}, "covariates": {"load": Z[:, 1]}}
    with jax.enable_x64(True):
        law = cj.Normal(predicted, np.full(N, model.scale_))
        np.testing.assert_allclose(model.scale_, np.std(predicted - targets), rtol=0.01)
        expected = cj.fit_recalibrator(law, targets, "conditional", **beside, **{name: units})
    assert str(model.recalibrator_) == str(expected) and "of shop" in str(expected)
    # Rows are recalibrated one by one, and by their shops.
    medians = model.predict(frame)
    np.testing.assert_allclose(model.predict(frame[:5]), medians[:5], rtol=1e-9)
    law = model.predict_distribution(frame)
    np.testing.assert_allclose(law.quantile(0.5), medians, rtol=1e-4)
    errors = [np.mean((targets - medians)[np.arange(N) % 3 == k]) for k in range(3)]
    assert np.ptp(errors) < 1


@pytest.mark.parametrize("name", ["clusters", "times"])
def test_maps_of_classifiers_know_groups_and_what_depends(name):
    units = np.arange(N) // 10
    ward = np.array(["a", "b"])[np.arange(N) % 2]
    # One ward has three times as many events as the model, which does not see it, can say.
    chance = expit(Z[:, 0] - 1 + 2 * (ward == "b"))
    labels = (np.random.default_rng(5).random(N) < chance).astype(int)
    frame = pd.DataFrame({"x": Z[:, 0], "ward": ward})
    seen = make_pipeline(FunctionTransformer(lambda X: X[["x"]]), LogisticRegression())
    model = RecalibratedClassifier(seen, method="temperature", cv=3, groups=["ward"])
    model.fit(frame, labels, **{name: units})
    if name == "times":
        folds = [(units // 10 != k, units // 10 == k) for k in range(3)]
    else:
        folds = StratifiedGroupKFold(3).split(frame, labels, units)
    probs = np.zeros((N, 2))
    for train, test in folds:
        fitted = LogisticRegression().fit(Z[train, :1], labels[train])
        probs[test] = fitted.predict_proba(Z[test, :1])
    with jax.enable_x64(True):
        law = cj.Categorical(probs)
        expected = cj.fit_recalibrator(
            law, labels, "temperature", groups={"ward": ward}, **{name: units}
        )
    assert str(model.recalibrator_) == str(expected) and "of ward" in str(expected)
    events = model.predict_proba(frame)[:, 1]
    np.testing.assert_allclose(model.predict_proba(frame[:5])[:, 1], events[:5], rtol=1e-9)
    assert abs(np.mean((labels - events)[ward == "b"])) < 0.05


def test_what_regressors_say():
    kinds = {
        HistGradientBoostingRegressor(loss="quantile"): ("quantiles", "quantile"),
        HistGradientBoostingRegressor(): ("number", None),
        GradientBoostingRegressor(loss="quantile"): ("quantiles", "alpha"),
        GradientBoostingRegressor(): ("number", None),
        QuantileRegressor(): ("quantiles", "quantile"),
        Ridge(): ("number", None),
        FrozenEstimator(BayesianRidge()): ("deviation", None),
    }
    for estimator, kind in kinds.items():
        assert _estimators.kind_of(estimator) == kind


def test_a_trained_regressor():
    trained = LinearRegression().fit(Z[:100], TARGETS[:100])
    model = RecalibratedRegressor(FrozenEstimator(trained), method="identity")
    model.fit(Z[100:], TARGETS[100:], sample_weight=np.arange(200))
    errors = (TARGETS[100:] - trained.predict(Z[100:])) ** 2
    np.testing.assert_allclose(model.scale_**2, np.sum(np.arange(200) * errors) / 19900)
    np.testing.assert_allclose(model.predict(Z), trained.predict(Z), atol=1e-6)


# Splitters of scikit-learn, by name.  Some hold a row out never, and some more than once.
SPLITTERS = {
    "GroupKFold": {"n_splits": 3},
    "GroupShuffleSplit": {"random_state": 0},
    "KFold": {"n_splits": 3, "shuffle": True, "random_state": 0},
    "LeaveOneGroupOut": {},
    "LeaveOneOut": {},
    "LeavePGroupsOut": {"n_groups": 2},
    "LeavePOut": {"p": 2},
    "PredefinedSplit": {"test_fold": np.arange(24) % 4 - 1},
    "RepeatedKFold": {"n_splits": 3, "n_repeats": 2, "random_state": 0},
    "RepeatedStratifiedKFold": {"n_splits": 3, "n_repeats": 2, "random_state": 0},
    "ShuffleSplit": {"n_splits": 3, "random_state": 0},
    "StratifiedGroupKFold": {"n_splits": 3},
    "StratifiedKFold": {"n_splits": 3},
    "StratifiedShuffleSplit": {"n_splits": 3, "random_state": 0},
    "TimeSeriesSplit": {"n_splits": 3},
    "pairs of rows": None,
    "pairs of masks": None,
}


def test_the_table_has_all_splitters_of_scikit_learn():
    found = [getattr(model_selection, name) for name in model_selection.__all__]
    splitters = {x.__name__ for x in found if isinstance(x, type) and hasattr(x, "split")}
    abstract = {"BaseCrossValidator", "BaseShuffleSplit"}
    assert splitters - abstract == {name for name in SPLITTERS if " " not in name}


OF_CLASSES = [(name, True) for name in SPLITTERS]
OF_NUMBERS = [(name, False) for name in SPLITTERS if "Stratified" not in name]


@pytest.mark.parametrize(("name", "of_classes"), OF_NUMBERS + OF_CLASSES)
def test_maps_are_fitted_to_the_rows_that_were_held_out(name, of_classes, monkeypatch):
    """Each as often as it was: none of the others, whose predictions nobody made, as 0."""
    n, rng = 24, np.random.default_rng(0)
    x, hospital = rng.normal(size=(n, 2)), np.arange(n) // 4
    number = 50 + x[:, 0] + rng.normal(size=n)
    if name.startswith("pairs"):
        cv = [(np.arange(0, n, 2), np.array([1, 3])), (np.arange(1, n, 2), np.array([0, 2]))]
        if name == "pairs of masks":
            cv = [tuple(np.isin(np.arange(n), rows) for rows in pair) for pair in cv]
    else:
        cv = getattr(model_selection, name)(**SPLITTERS[name])
    y = np.array(["no", "yes"])[np.arange(n) // 2 % 2] if of_classes else number
    base = GaussianNB() if of_classes else LinearRegression()
    folds = (
        cv
        if name.startswith("pairs")
        else list(cv.split(x, y, *([hospital] if "Group" in name else [])))
    )
    rows, said = [], []
    for train, test in folds:
        model = clone(base).fit(x[train], y[train])
        rows += np.arange(n)[test].tolist()
        said += (model.predict_proba if of_classes else model.predict)(x[test]).tolist()
    order = np.argsort(rows, kind="stable")
    rows, said = np.array(rows)[order], np.array(said)[order]

    fits = []

    def fit_recalibrator(predictions, targets, method, **known):
        fits.append((jax.tree.leaves(predictions)[0], targets, known))

    wrapper = RecalibratedClassifier if of_classes else RecalibratedRegressor
    monkeypatch.setattr(_estimators, "fit_recalibrator", fit_recalibrator)
    weights = np.ones(n)
    clusters = hospital if "Group" in name else None
    wrapper(base, cv=cv, groups=[1]).fit(x, y, weights, clusters=clusters)
    ((found, targets, known),) = fits
    np.testing.assert_allclose(found, said, atol=1e-12)
    np.testing.assert_array_equal(targets, (y == "yes")[rows] if of_classes else y[rows])
    np.testing.assert_array_equal(known["groups"]["1"], x[rows, 1])
    np.testing.assert_array_equal(known["weights"], weights[rows])
    # Copies of one row stay together.
    together = known["clusters"]
    if clusters is not None or np.unique(rows).size < rows.size:
        expected = rows if clusters is None else clusters[rows]
        assert np.all((together[:, None] == together) == (expected[:, None] == expected))
    else:
        assert together is None


def test_scorers(monkeypatch):
    model = clone(BAYES).fit(X[TRAIN], Y[TRAIN])
    probs, labels = model.predict_proba(X[NEW]), np.searchsorted(model.classes_, Y[NEW])
    distance = np.abs(probs[:, None] - probs).sum(axis=2) / 2
    residuals = np.eye(3)[labels] - probs
    pairs = np.exp(-distance / 0.5) * (residuals @ residuals.T)
    n = len(labels)
    expected = (pairs.sum() - np.trace(pairs)) / (n * (n - 1))
    np.testing.assert_allclose(skce_scorer(model, X[NEW], Y[NEW]), -expected, rtol=1e-3)

    def calibration_test(key, predictions, targets):
        return type("", (), {"pvalue": float(np.sum(targets))})

    monkeypatch.setattr(_metrics, "calibration_test", calibration_test)
    assert calibration_pvalue_scorer(model, X[NEW], Y[NEW]) == labels.sum()


def test_displays():
    events = (Y[NEW] == "two").astype(int)
    model = clone(BAYES).fit(X[TRAIN], Y[TRAIN])
    found = ReliabilityDisplay.from_estimator(model, X[NEW], Y[NEW], pos_label="two")
    assert found.ax_.get_title("left") == "GaussianNB" and found.figure_ is found.ax_.figure
    again = ReliabilityDisplay.from_predictions(
        events, model.predict_proba(X[NEW])[:, 1], ax=found.ax_
    )
    assert again.ax_ is found.ax_
    np.testing.assert_allclose(
        again.curve.score, np.mean((model.predict_proba(X[NEW])[:, 1] - events) ** 2), rtol=1e-6
    )
    named = ReliabilityDisplay.from_predictions(
        Y[NEW] == "two", np.full(len(events), 0.3), name="rate"
    )
    assert named.plot(name="other").ax_.get_title("left") == "other"


ERRORS = {
    "no probabilities": (
        lambda: RecalibratedClassifier(LinearSVC()).fit(X, Y),
        "estimator must have predict_proba, got LinearSVC",
    ),
    "method": (
        lambda: RecalibratedClassifier(BAYES, method="best").fit(X, Y),
        "method must be one of",
    ),
    "classes": (
        lambda: RecalibratedClassifier(FrozenEstimator(clone(BAYES).fit(X, DIGITS))).fit(
            X, DIGITS + 1
        ),
        "y must hold the classes",
    ),
    "coverage": (
        lambda: RecalibratedRegressor(method="identity").fit(Z, TARGETS).predict_interval(Z, 90),
        "coverage must be between 0 and 1, got 90",
    ),
    "one time": (
        lambda: RecalibratedRegressor().fit(Z, TARGETS, times=np.ones(N)),
        "times must have at least 2 different values",
    ),
    "column": (
        lambda: RecalibratedRegressor(groups=["shop"]).fit(pd.DataFrame(Z), TARGETS),
        r"X must have the columns \['shop'\]",
    ),
    "position": (
        lambda: RecalibratedRegressor(covariates=[2]).fit(Z, TARGETS),
        r"X must have the columns \[2\]",
    ),
    "class": (
        lambda: ReliabilityDisplay.from_estimator(clone(BAYES).fit(X, Y), X, Y),
        "pos_label must be one of",
    ),
    "event": (
        lambda: ReliabilityDisplay.from_predictions(["no", "yes"], [0.5, 0.5]),
        r"pos_label must say which of \['no', 'yes'\]",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, message = ERRORS[case]
    check_message(call, TypeError if case == "no probabilities" else ValueError, message)


# Maps count n rows of unequal weights as fewer rows of equal ones, and not as repeated rows.
UNEQUAL = dict.fromkeys(
    [f"check_sample_weight_equivalence_on_{x}_data" for x in ("dense", "sparse")],
    "weights are not numbers of repetitions",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [RecalibratedClassifier(method="temperature"), RecalibratedRegressor()],
    expected_failed_checks=lambda x: UNEQUAL if isinstance(x, RecalibratedClassifier) else {},
)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
