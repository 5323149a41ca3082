"""Typical mistakes of users, most of them of `evaluate`: an error of one line says what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from messages import check_message
from sklearn.linear_model import LogisticRegression

import calibjax as cj

N, M = 6, 3
PROBS = np.full((N, M), [0.2, 0.3, 0.5])
LABELS = np.array([0, 1, 2, 2, 1, 0])
NAMES = np.array(["cat", "dog", "fox"])
FRAME = pd.DataFrame(PROBS, columns=list(NAMES))
NORMAL = cj.Normal(jnp.zeros(N), jnp.ones(N))
KEY = jax.random.key(0)
KERNEL = cj.TensorProduct(cj.DistanceKernel(cj.TotalVariation()), cj.WhiteKernel())


def with_nan(array):
    array = array.astype(float)
    array[4, ..., 0] = np.nan
    return array


MISTAKES = {
    "frame to a pure function": (
        lambda: cj.calibration_test(KEY, cj.Categorical(FRAME), LABELS),
        TypeError,
        "probs must be an array .* got DataFrame; numpy.asarray",
    ),
    "column to a pure function": (
        lambda: cj.skce(KERNEL, cj.Categorical(jnp.asarray(PROBS)), pd.Series(LABELS)),
        TypeError,
        "targets must be an array .* got Series; numpy.asarray",
    ),
    "list to a pure function": (
        lambda: cj.skce(KERNEL, cj.Categorical(jnp.asarray(PROBS)), LABELS.tolist()),
        TypeError,
        "targets must be an array, got list; numpy.asarray",
    ),
    "ragged lists": (
        lambda: cj.evaluate([[0.5, 0.5], [1.0]], [0, 1]),
        ValueError,
        "predictions must be rows of equal length",
    ),
    "strings without classes": (
        lambda: cj.evaluate(PROBS, NAMES[LABELS]),
        ValueError,
        r"classes must name the classes .* classes=\['cat', 'dog', 'fox'\]",
    ),
    "an unknown class": (
        lambda: cj.evaluate(PROBS, [*NAMES[LABELS][:5], "cow"], classes=NAMES),
        ValueError,
        r"targets, row 5: expected labels among classes \['cat', 'dog', 'fox'\], got 'cow'",
    ),
    "columns that are no names": (
        lambda: cj.evaluate(FRAME.add_prefix("p_"), NAMES[LABELS]),
        ValueError,
        r"targets, row 0: .*'p_dog'.*: classes must name the classes in the order",
    ),
    "too few classes": (
        lambda: cj.evaluate(PROBS, NAMES[LABELS], classes=["cat", "dog"]),
        ValueError,
        "classes must be 3 names, in the order of the columns of predictions, got 2",
    ),
    "labels first": (
        lambda: cj.evaluate(LABELS, PROBS),
        ValueError,
        r"predictions come first, evaluate\(predictions, targets\)",
    ),
    "names first": (
        lambda: cj.evaluate(NAMES[LABELS], PROBS[:, 0]),
        ValueError,
        r"predictions come first, evaluate\(predictions, targets\)",
    ),
    "a distribution for targets": (
        lambda: cj.evaluate(np.zeros(N), NORMAL),
        TypeError,
        "targets must hold values, got Normal: predictions come first",
    ),
    "an event as one class": (
        lambda: cj.ece(cj.Categorical(jnp.asarray(PROBS[:, 0])), LABELS > 1),
        ValueError,
        r"probs must have shape \[n, m\], got shape \[6\].* calibjax.Bernoulli\(probs\)",
    ),
    "an event as one column": (
        lambda: cj.ece(cj.Categorical(jnp.asarray(PROBS[:, :1])), LABELS > 1),
        ValueError,
        r"probs must be .* calibjax.Bernoulli\(probs\[:, 0\]\)",
    ),
    "names as predictions": (
        lambda: cj.evaluate(NAMES[LABELS], NAMES[LABELS]),
        TypeError,
        "predictions must be probabilities .* got strings",
    ),
    "one-hot targets": (
        lambda: cj.evaluate(PROBS, np.eye(M)[LABELS]),
        ValueError,
        r"targets: expected labels.* one-hot .* numpy.argmax\(targets, axis=1\)",
    ),
    "labels from 1": (
        lambda: cj.evaluate(PROBS, LABELS + 1),
        ValueError,
        "targets: expected labels 0 … 2, got 1 … 3: subtract 1",
    ),
    "a label out of range": (
        lambda: cj.evaluate(PROBS, [0, 1, 2, 7, 1, 0]),
        ValueError,
        "targets, row 3: expected labels 0 … 2, got 7",
    ),
    "logits as probabilities": (
        lambda: cj.evaluate(3 * PROBS - 1, LABELS),
        ValueError,
        "predictions, row 0: expected a probability, got -0.39.*Categorical.from_logits",
    ),
    "logits of an event": (
        lambda: cj.evaluate(np.linspace(-2, 2, N), LABELS > 0),
        ValueError,
        r"row 0: .* got -2\.0; .*Bernoulli.from_logits",
    ),
    "percentages": (
        lambda: cj.evaluate(100 * PROBS, LABELS),
        ValueError,
        "row 0: expected a sum of 1 .* got 100; they look like percentages, divide them by 100",
    ),
    "percentages of an event": (
        lambda: cj.evaluate(np.linspace(0, 100, N), LABELS > 0),
        ValueError,
        "row 1: .* got 20.0; of percentages, 0 to 100, divide the column by 100",
    ),
    "two digits": (
        lambda: cj.evaluate(np.tile([0.33, 0.33, 0.33], (N, 1)), LABELS),
        ValueError,
        "row 0: expected a sum of 1 \\(normalize=True divides by the sum\\), got 0.99",
    ),
    "NaN in predictions": (
        lambda: cj.evaluate(with_nan(PROBS), LABELS),
        ValueError,
        "predictions, row 4: expected a finite number, got .nan",
    ),
    "a missing label": (
        lambda: cj.evaluate(PROBS, pd.Series(["cat", None] * 3), classes=NAMES),
        ValueError,
        "targets must not have missing values; row 1 is",
    ),
    "a missing number in a column": (
        lambda: cj.evaluate(NORMAL, pl.Series([0.0, None, 1.0, 2.0, 3.0, 4.0])),
        ValueError,
        "targets must be finite.* row 1 is nan",
    ),
    "the class of a kernel": (
        lambda: cj.skce(cj.TensorProduct, NORMAL, jnp.zeros(N)),
        TypeError,
        r"kernel must be an instance, got the class TensorProduct: call it, TensorProduct\(",
    ),
    "the class of a distance": (
        lambda: cj.skce(
            cj.TensorProduct(cj.DistanceKernel(cj.Wasserstein), cj.GaussianKernel(1.0)),
            NORMAL,
            jnp.zeros(N),
        ),
        TypeError,
        "distance must be an instance, got the class Wasserstein",
    ),
    "the class of a distribution": (
        lambda: cj.evaluate(cj.Normal, jnp.zeros(N)),
        TypeError,
        "predictions must hold values, got a class: call Normal",
    ),
    "no key": (
        lambda: cj.calibration_test(NORMAL, jnp.zeros(N)),
        TypeError,
        r"key must come first, calibration_test\(jax.random.key\(0\), predictions, targets\)",
    ),
    "an integer for a key": (
        lambda: cj.calibration_test(0, NORMAL, jnp.zeros(N)),
        TypeError,
        r"key must be a typed key such as jax.random.key\(0\), got int",
    ),
    "a key of the old style": (
        lambda: cj.calibration_test(jax.random.PRNGKey(0), NORMAL, jnp.zeros(N)),
        TypeError,
        "key must be a typed key .* got an array of dtype uint32; jax.random.wrap_key_data",
    ),
    "a key for a seed": (
        lambda: cj.evaluate(PROBS, LABELS, seed=KEY),
        TypeError,
        "seed must be an integer",
    ),
    "a row too few": (
        lambda: cj.evaluate(PROBS, LABELS[:-1]),
        ValueError,
        "targets must have one row for each of the 6 rows of predictions, got 5",
    ),
    "classes as rows": (
        lambda: cj.evaluate(PROBS.T, LABELS),
        ValueError,
        r"3 rows of predictions, got 6; if rows are classes, pass the transpose, predictions.T",
    ),
    "nothing": (
        lambda: cj.evaluate([], []),
        ValueError,
        "predictions and targets must have at least two rows, got none",
    ),
    "one row": (lambda: cj.evaluate([[0.5, 0.5]], [0]), ValueError, "at least 2 rows, got 1"),
    "predicted means": (
        lambda: cj.evaluate(np.linspace(3.0, 9.0, N), np.linspace(3.0, 9.0, N)),
        ValueError,
        r"row 0: expected a probability, got 3\.",
    ),
    "real targets of probabilities": (
        lambda: cj.evaluate(PROBS, np.linspace(0.5, 2.0, N)),
        ValueError,
        r"row 0: .* got 0.5; of real targets .* calibjax.Normal\(mean, sd\)",
    ),
    "draws as an array": (
        lambda: cj.evaluate(np.random.default_rng(0).normal(size=(N, 20)), np.zeros(N)),
        ValueError,
        r"calibjax.Empirical\(predictions\)",
    ),
    "draws transposed": (
        lambda: cj.evaluate(cj.Empirical(jnp.zeros((20, N))), jnp.zeros(N)),
        ValueError,
        "s = 6 in the predictions: if their first two axes are swapped, jnp.moveaxis",
    ),
    "a model": (
        lambda: cj.evaluate(LogisticRegression(), LABELS),
        TypeError,
        "got LogisticRegression: pass what its predict_proba returns",
    ),
    "predicted labels": (
        lambda: cj.evaluate(LABELS, LABELS),
        ValueError,
        "predictions must be probabilities, got whole numbers: .* predict_proba",
    ),
    "labels as draws": (
        lambda: cj.evaluate(cj.Empirical(jnp.asarray(LABELS)[:, None]), LABELS, classes=NAMES),
        TypeError,
        r"draws of labels .* frequencies are Categorical",
    ),
    "an ensemble": (
        lambda: cj.evaluate(np.full((N, 4, M), 1 / M), LABELS),
        ValueError,
        r"got shape \[6, 4, 3\]; of an ensemble .*Mixture.ensemble",
    ),
    "level in percent": (
        lambda: cj.evaluate(PROBS, LABELS, level=5),
        ValueError,
        "level must be a number from 0.001 to 0.5, such as 0.05 for a confidence of 95 %, got 5",
    ),
    "one row of an event": (
        lambda: cj.evaluate([0.5], [1]),
        ValueError,
        "^predictions: expected at least 2 rows, got 1",
    ),
    "several labels": (
        lambda: cj.evaluate(PROBS, np.tile([0, 1, 1], (N, 1))),
        ValueError,
        r"one label in each row, got several or none: .* evaluate\(probs\[:, 0\], targets",
    ),
    "several labels of a distribution": (
        lambda: cj.evaluate(cj.Categorical(PROBS), np.tile([0, 1, 1], (N, 1))),
        ValueError,
        "one label in each row, got several or none",
    ),
    "several labels of a pure function": (
        lambda: cj.ece(cj.Categorical(PROBS), np.tile([0, 1, 1], (N, 1))),
        ValueError,
        r"got shape \[.*; labels of one-hot rows are .*; each of several labels is an event, Bern",
    ),
    "several events": (
        lambda: cj.ece(cj.Bernoulli(PROBS), np.tile([0, 1, 1], (N, 1))),
        ValueError,
        "probs must have shape .*; classes are Categorical.*; each of several labels is an event",
    ),
    "a masked mean": (
        lambda: cj.evaluate(cj.Normal(np.ma.masked_equal(LABELS, 2), 1.0), LABELS),
        ValueError,
        "loc must not have masked values, got",
    ),
    "several labels whose probabilities are no classes": (
        lambda: cj.evaluate(np.full((N, M), 0.5), np.eye(M)[LABELS] * [1, 0, 1]),
        ValueError,
        "one label in each row, got several or none",
    ),
    "two of three classes": (
        lambda: cj.evaluate(PROBS, NAMES[LABELS % 2]),
        ValueError,
        r"got 'cat': classes must .* all 3 of them, and not only \['cat', 'dog'\]",
    ),
    "masked targets of a pure function": (
        lambda: cj.Data(cj.Categorical(PROBS), np.ma.masked_array(LABELS, LABELS == 2)),
        ValueError,
        "targets must not have masked values, got 2; .* where=",
    ),
    "masked probabilities of a pure function": (
        lambda: cj.Data(cj.Categorical(np.ma.masked_array(PROBS, PROBS == 0.2)), LABELS),
        ValueError,
        "probs must not have masked values, got 6",
    ),
    "texts as covariates": (
        lambda: cj.Data(cj.Categorical(PROBS), LABELS, covariates=NAMES[LABELS][:, None]),
        TypeError,
        "covariates must hold real values, got strings or objects; pass categories as groups",
    ),
    "one time": (
        lambda: cj.evaluate(PROBS, LABELS, times=np.ones(N)),
        ValueError,
        "at least 2 different values, got 1; pass none if rows are independent",
    ),
    "one simulation": (
        lambda: cj.check_posterior({"a": [0.1]}, {"a": [[0.1, 0.2, 0.3]]}),
        ValueError,
        "theta and draws must have at least 2 simulations, got 1",
    ),
    "a dictionary": (
        lambda: cj.evaluate({"p": PROBS}, LABELS),
        TypeError,
        "predictions must be an array, a list or a frame, got a dict",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_line_that_says_what_to_do(mistake):
    call, exception, message = MISTAKES[mistake]
    check_message(call, exception, message)
    with pytest.raises(exception) as caught:
        call()
    assert "\n" not in str(caught.value)
