"""Trains the digit classifier on the data set that scikit-learn ships and writes it to a file.

Run once, while the image is built. Owns the model's quality: a model below the bound is not written, and the build
fails. Usage: ``python train.py model.pickle``
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

VERSION = "1.0.0"
LEAST_ACCURACY = 0.95


def train(path: Path) -> float:
    """Writes the trained model with its name, version and accuracy on held-out digits; returns the accuracy."""
    pixels, labels = load_digits(return_X_y=True)
    train_pixels, test_pixels, train_labels, test_labels = train_test_split(
        pixels, labels, test_size=0.25, random_state=20261201, stratify=labels
    )
    classifier = make_pipeline(MinMaxScaler(), LogisticRegression(C=10.0, max_iter=2000))
    classifier.fit(train_pixels, train_labels)
    accuracy = float(classifier.score(test_pixels, test_labels))
    if accuracy < LEAST_ACCURACY:
        raise SystemExit(f"accuracy {accuracy:.3f} is below {LEAST_ACCURACY}: the model is not written")
    model = {"name": "digits", "version": VERSION, "accuracy": accuracy, "classifier": classifier}
    path.write_bytes(pickle.dumps(model))
    return accuracy


if __name__ == "__main__":
    print(f"accuracy on held-out digits: {train(Path(sys.argv[1])):.3f}")
