"""Watch a classifier after its training: does it still know how sure it may be?

    python examples/monitor.py [--split 0] [--figure monitor.png]

scikit-learn's handwritten digits stand in the order in which they were collected, writer after
writer, as its own tests say ("apparently grouped by authors").  A classifier learns one half of the
first 700 images, gets its temperature from a quarter, and sees the last quarter, all by the same
writers, and then image by image what other people wrote.  It stays about as sure as before, but is
right less often.  `CalibrationMonitor` may be looked at after every batch: if the model is
calibrated, it rings with a probability of at most 5 %, however long it runs.

On split 0 it rings 225 images after the first new writer.  One temperature is not all that
calibration takes, and the monitor finds that, too: on some splits it would ring without new
writers, but later and with less evidence.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import calibjax as cj

N_KNOWN, BATCH = 700, 25

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--split", type=int, default=0, help="seed of the split of the first images")
parser.add_argument("--figure", default="monitor.png")
args = parser.parse_args()

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(args.split).permutation(N_KNOWN)
train, tune, held_out = np.split(order, [N_KNOWN // 2, 3 * N_KNOWN // 4])
model = LogisticRegression(max_iter=1000).fit(images[train] / 16, labels[train])


def predict(rows: np.ndarray) -> cj.Categorical:
    return cj.Categorical.from_logits(jnp.asarray(model.decision_function(images[rows] / 16)))


temperature = cj.fit_temperature(predict(tune), jnp.asarray(labels[tune]))
tuned = cj.apply_temperature(predict(tune), temperature)
monitor = cj.CalibrationMonitor.start(jax.random.key(0), tuned)
update = jax.jit(lambda monitor, *batch: monitor.update(*batch))

stream = np.concatenate([held_out, np.arange(N_KNOWN, len(labels))])
n_batches = len(stream) // BATCH
e_values, alarm_at = [], None
for rows in stream[: n_batches * BATCH].reshape(n_batches, BATCH):
    predictions = cj.apply_temperature(predict(rows), temperature)
    monitor = update(monitor, predictions, jnp.asarray(labels[rows]))
    e_values.append(float(monitor.e_value))
    if alarm_at is None and monitor.alarm(0.05):
        alarm_at = int(monitor.n_rows)
        print(f"Alarm after {alarm_at} images; new writers came after {len(held_out)}.")

for name, rows in {"known": held_out, "new": stream[len(held_out) :]}.items():
    probs = cj.apply_temperature(predict(rows), temperature).probs
    hits = jnp.mean(jnp.argmax(probs, axis=1) == labels[rows])
    sure = jnp.mean(jnp.max(probs, axis=1))
    print(f"{name} writers: {sure:.1%} sure on average, {hits:.1%} right")

figure = Figure(figsize=(7, 3.6), layout="constrained")
axes = figure.subplots()
axes.semilogy(BATCH * np.arange(1, n_batches + 1), e_values, label="e-value after each batch")
axes.axhline(20, color="C3", label="alarm at level 0.05")
axes.axvline(len(held_out), color="0.6", linestyle="--", label="new writers")
if alarm_at is not None:
    axes.axvline(alarm_at, color="C3", linestyle=":", label="first alarm, within a batch")
axes.set(xlabel="images", ylabel="evidence against calibration")
axes.legend()
figure.savefig(args.figure, dpi=150)
print(f"Figure: {args.figure}")
