"""Measures how many positions each head averages: the mean entropy of its attention weights, in bits.

    python -m infer --workdir=RUN --split=test
    python -m lab.studies.heads.measure --workdir=RUN

The first 200 pairs of the test text are read, with the reference as target. The result, by place, layer and head, is
added to the newest evaluation of the test split, so that a record of the run has both.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import entr

from lab.evaluation import evaluation_file
from lab.studies.heads.design import PAIRS, PLACES
from vaswani.data.sources import open_corpus
from vaswani.files import write_json
from vaswani.infer.attention.maps import attention_maps
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import Run, open_run
from vaswani.read_json import read_json


def main(options: Any) -> None:
    """Measures each run, prints the mean of each place, and adds the result to its evaluation."""
    for workdir in options.workdir:
        run = open_run(workdir, options.checkpoint, "translation")
        path = evaluation_file(run)
        pairs = islice(open_corpus(run.config.data.test).pairs(), PAIRS)
        measured = head_entropies(run, pairs)
        for place, of_place in measured.items():
            mean = np.mean(of_place["heads"])
            print(f"{workdir} {place}: {mean:.3f} bits, uniform {of_place['uniform']:.3f}", flush=True)
        write_json(path, {**read_json(path, dict), "head_entropy": measured})


def head_entropies(run: Run, pairs: Iterable[tuple[str, ...]]) -> dict[str, dict[str, Any]]:
    """Returns for each place the mean over queries: "heads", of each layer's heads [n,h], and "uniform", a number."""
    of_heads: dict[str, list[np.ndarray]] = {place: [] for place in PLACES}
    of_uniform: dict[str, list[np.ndarray]] = {place: [] for place in PLACES}
    for source, target in pairs:
        maps = attention_maps(run.model_config, run.params, run.tokenizer, source, target)
        for place in PLACES:
            weights_nhts = maps[place].weights_nhts
            visible_ts = np.ones(weights_nhts.shape[2:])
            if place == "decoder":
                # A position sees itself and those before it.
                visible_ts = np.tril(visible_ts)
            of_heads[place].append(bits(weights_nhts))
            of_uniform[place].append(np.log2(visible_ts.sum(-1)))
    measured: dict[str, dict[str, Any]] = {}
    for place in PLACES:
        heads_nh = np.concatenate(of_heads[place], axis=-1).mean(-1)
        uniform = float(np.concatenate(of_uniform[place]).mean())
        measured[place] = {"heads": heads_nh.tolist(), "uniform": uniform}
    return measured


def bits(weights: Float[np.ndarray, "*rows s"]) -> Float[np.ndarray, "*rows"]:
    """Returns the entropy of weights over the last axis; 0 log 0 is 0."""
    return entr(weights.astype(float)).sum(-1) / np.log(2)


if __name__ == "__main__":
    define_run_flags(several=True)
    start(main, hint="the run is given as --workdir=DIR")
