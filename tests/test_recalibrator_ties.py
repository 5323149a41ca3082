"""Ties of maps that look scores up: equal ones are equal at a fit and where the map is used."""

import itertools

import jax
import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

import calibjax as cj

N = 200
RNG = np.random.default_rng(0)
# Of events: what the probability is, as a whole number, and the probability that it stands for.
CODES = {
    "continuous": RNG.permutation(N),
    **{f"votes of {k}": RNG.integers(0, k + 1, N) for k in (5, 7, 10, 100)},
    "saturated": RNG.integers(0, 7, N),
    "equal": np.zeros(N, int),
}
# Beside 1 float32 knows no difference of the last three.
SATURATED = np.array([0.5, 1e-3, 1e-4, 1e-5, 1e-9, 1e-10, 1e-12])


def _rest(kind):
    """The probabilities of no event."""
    codes = CODES[kind]
    if kind == "saturated":
        return SATURATED[codes]
    return 1 - (codes + 0.5 if kind in ("continuous", "equal") else codes) / {
        "continuous": N,
        "equal": 3,
    }.get(kind, int(kind.split()[-1]) if kind.startswith("votes") else 1)


def _events(codes):
    return (np.random.default_rng(1).random(N) < 0.1 + 0.8 * codes / (1 + codes.max())).astype(int)


def isotonic(codes, happened):
    """Means at tied scores, by scikit-learn on whole numbers."""
    return IsotonicRegression().fit(codes, happened).predict(codes)


def venn_abers(codes, happened):
    """One row more of the same score, once an event and once none."""
    found = np.zeros(len(codes))
    for code in np.unique(codes):
        more = np.append(codes, code)
        p0, p1 = (
            IsotonicRegression().fit(more, np.append(happened, y)).predict([code])[0]
            for y in (0, 1)
        )
        found[codes == code] = p1 / (1 - p0 + p1)
    return found


PRECISIONS = [
    pytest.param(*types, x64, id=f"{types[0]}-{types[1]}-x64={x64}")
    for types in itertools.product(("float32", "float64"), repeat=2)
    for x64 in (False, True)
]


@pytest.mark.parametrize(("at_fit", "at_use", "x64"), PRECISIONS)
@pytest.mark.parametrize("kind", CODES)
def test_events_with_equal_probabilities_are_tied(kind, at_fit, at_use, x64):
    codes, rest = CODES[kind], _rest(kind)
    events = _events(codes)
    pair = np.stack([rest, 1 - rest], axis=1)
    # One number near 1 has not the digits of two columns.
    of_one = np.minimum(codes, 4) if kind == "saturated" else codes
    with jax.enable_x64(x64):
        for of, seen in ((lambda p: cj.Bernoulli(p[:, 1]), of_one), (cj.Categorical, codes)):
            for method, expected in (("isotonic", isotonic), ("venn_abers", venn_abers)):
                fit = of(pair.astype(at_fit))
                mended = cj.fit_recalibrator(fit, events, method)(of(pair.astype(at_use)))
                q = np.asarray(mended.label_probabilities(), float)[:, 1]
                right = expected(seen, events)
                if method == "isotonic":
                    right = (1 - 1 / (N + 1)) * right + 0.5 / (N + 1)
                np.testing.assert_allclose(q, right, atol=2e-6, err_msg=f"{method} {of}")


@pytest.mark.parametrize(("at_fit", "at_use", "x64"), PRECISIONS)
@pytest.mark.parametrize(("m", "votes"), [(3, 10), (3, 100), (10, 7)])
def test_classes_with_equal_probabilities_are_tied(m, votes, at_fit, at_use, x64):
    """Whatever the other classes of a row have, zeros included, and in whatever order they come."""
    rng = np.random.default_rng(2)
    codes = rng.multinomial(votes, rng.dirichlet(np.ones(m), N))
    labels = np.array([rng.choice(m, p=p) for p in (codes + 1) / (votes + m)])
    columns = [isotonic(codes[:, k], labels == k) for k in range(m)]
    right = np.stack(columns, axis=1)
    right = (1 - 1 / (N + 1)) * right / right.sum(axis=1, keepdims=True) + 1 / (m * (N + 1))
    # Means of votes, added up one after another, are known up to rounding.
    drawn = np.stack([rng.permuted(np.repeat(np.arange(m), row)) for row in codes])
    probs = np.add.reduce((drawn[:, :, None] == np.arange(m)) / np.float32(votes), axis=1)
    with jax.enable_x64(x64):
        for order in (np.arange(m), np.arange(m)[::-1]):
            fit, use = (cj.Categorical(probs[:, order].astype(x)) for x in (at_fit, at_use))
            recalibrator = cj.fit_recalibrator(fit, np.argsort(order)[labels], "isotonic")
            found = np.asarray(recalibrator(use).probs)
            np.testing.assert_allclose(found, right[:, order], atol=2e-6)
