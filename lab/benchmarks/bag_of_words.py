"""Classifies the test texts of a classifier's run by their words alone, to compare with `python -m infer`.

    pip install -e '.[vision]'   # scikit-learn
    python -m lab.benchmarks.bag_of_words --workdir=runs/number

Prints the accuracy of logistic regression on how often each of the run's subwords is in a text, trained on the run's
own training texts, and that of always naming the class that is most frequent there.
"""

import numpy as np
from absl import flags

from vaswani.command import run
from vaswani.data.imported import open_tokenizer
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import folder
from vaswani.run.config import read_config

_WORKDIR = flags.DEFINE_string("workdir", None, "folder of the run", required=True)


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    workdir = folder("workdir", _WORKDIR.value)
    cfg = read_config(workdir)
    if cfg.task != "classification":
        raise UserError(f"--workdir={workdir}: this run's task is {cfg.task}; this is for classification")
    try:
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise UserError("this needs scikit-learn: pip install -e '.[vision]'") from error
    tokenizer = open_tokenizer(workdir / "tokenizer.model")

    def counts(spec: str) -> tuple[np.ndarray, tuple[str, ...]]:
        """Returns how often each subword is in each text [n,v], and the class of each."""
        texts, labels = zip(*open_corpus(spec).pairs(), strict=True)
        rows = [np.bincount(tokenizer.encode(text), minlength=tokenizer.vocab_size) for text in texts]
        return np.array(rows), labels

    train_counts, train_labels = counts(cfg.data.train)
    test_counts, test_labels = counts(cfg.data.test)
    by_words = LogisticRegression(max_iter=1_000).fit(train_counts, train_labels)
    most_frequent = DummyClassifier().fit(train_counts, train_labels)
    print(
        f"bag of words {by_words.score(test_counts, test_labels):.4f}, "
        f"most frequent class {most_frequent.score(test_counts, test_labels):.4f}, {len(test_labels):,} texts"
    )


if __name__ == "__main__":
    run(main, hint="the run is given as --workdir=DIR")
