"""Is it calibrated?  A network's predictions, and the same after temperature scaling.

    python examples/is_it_calibrated.py [--figure is_it_calibrated.png] [--report report.html]
                                        [--csv predictions.csv]

A small network reads digits of which 40 % of the pixels are kept.  Trained to the end, it is right
less often than it says.  One number, fitted on other images, divides its logits: it changes no
decision, and the second evaluation shows what it repairs, and what it does not.  Half a minute on
two CPU cores.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import calibjax as cj
from calibjax import plot

DIGITS = "zero one two three four five six seven eight nine".split()


def network_on_digits() -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``[n, 10]`` of images that did not train the network, and their digits."""
    images, digits = load_digits(return_X_y=True)
    kept = np.random.default_rng(0).random(images.shape) < 0.4
    train, test, train_digits, test_digits = train_test_split(
        images / 16 * kept, digits, test_size=0.6, stratify=digits, random_state=0
    )
    network = MLPClassifier((64,), alpha=0.3, max_iter=2000, random_state=0)
    return network.fit(train, train_digits).predict_proba(test), test_digits


def save_csv(path: str, probabilities: np.ndarray, digits: np.ndarray) -> None:
    """One row for each image: the probability of each digit, and the digit."""
    header = ",".join([*(f"p_{name}" for name in DIGITS), "digit"])
    lines = [
        ",".join([*(f"{p:.4g}" for p in row), DIGITS[digit]])
        for row, digit in zip(probabilities, digits, strict=True)
    ]
    with open(path, "w") as file:
        file.write("\n".join([header, *lines]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figure", default="is_it_calibrated.png")
    parser.add_argument("--report", help="a file of HTML for all numbers and pictures")
    parser.add_argument("--csv", help="a file for the predictions of the network")
    args = parser.parse_args()

    probabilities, digits = network_on_digits()
    fit, held_out = slice(None, 300), slice(300, None)
    predictions = cj.Categorical(probabilities[held_out])
    temperature = cj.fit_temperature(cj.Categorical(probabilities[fit]), digits[fit])
    models = {
        "network": predictions,
        f"divided by {temperature:.2f}": cj.apply_temperature(predictions, temperature),
    }
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    for name, axes in zip(models, figure.subplots(1, 2), strict=True):
        evaluation = cj.evaluate(models[name], digits[held_out], classes=range(10))
        print(f"--- {name} ---\n{evaluation}\n")
        plot.reliability(evaluation.curves["reliability"], ax=axes).set_title(name, loc="left")
        if args.report and name == "network":
            evaluation.to_html(args.report)
    figure.savefig(args.figure, dpi=150)
    if args.csv:
        save_csv(args.csv, probabilities[held_out], digits[held_out])


if __name__ == "__main__":
    main()
