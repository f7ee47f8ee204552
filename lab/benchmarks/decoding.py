"""Times beam search against CTranslate2, float32 and int8.

pip install -e '.[bench]'
python -m lab.benchmarks.decoding --workdir=RUN --source=FILE [--reference=FILE] [--rounds=9]
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m lab.benchmarks.decoding [--rounds=9] [--sentences=8] [--beam=4]

With --workdir a trained run translates the lines of a file, with the decoding options of its config, in float32 and in
bfloat16, on one processor and on two; the table has the first call, a second process, warm rounds, and with --reference
the BLEU of each (lab/benchmarks/real_text.py). With --single each line is a call, as in a service.

Without, it is one batch of the base model: the same weights and 20-token sentences. Random weights are exported to
CTranslate2; scoring its float32 outputs with our model checks that the two are the same. EOS is suppressed, in
CTranslate2 by an option and here by a zero embedding, so that both write 20 tokens; ours then takes one more step for
the forced EOS. CTranslate2 divides the batch among the processors (`inter_threads`). Rounds alternate between them; a
round that got less than 90 % of the processors that the contender had at best is dropped, since the machine may be
shared. Compilation is excluded. The last lines are the ratio of the files' sizes, and ratios of median times; int8
computes another, less exact model.
"""

import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.machine import cpus
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.search.options import Decoding
from vaswani.search.scoring import forced_log_probs
from vaswani.search.searches import run_search

TOKENS = 20
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]


def problem(config: ModelConfig, sentences: int, length: int = TOKENS) -> tuple[Any, np.ndarray]:
    """Returns random parameters that never end a sentence, and sources of `length` random tokens."""
    params = init_params(Transformer(config), jax.random.key(0))
    source_bs = np.random.default_rng(0).integers(len(SPECIALS), config.vocab_size, (sentences, length), np.int32)
    source_bs[:, -1] = EOS
    return params | {"embed": params["embed"].at[EOS].set(0.0)}, source_bs


def our_search(config: ModelConfig, params: Any, source_bs: np.ndarray, beam: int) -> Callable[[], Any]:
    """Returns a function that searches and waits for the result."""
    search = jax.jit(functools.partial(run_search, Transformer(config), Decoding(beam, extra_length=1)))
    return lambda: jax.block_until_ready(search(params, source_bs))


def names_of(config: ModelConfig) -> list[str]:
    """Returns CTranslate2's names for our ids."""
    return SPECIALS + [f"t{i}" for i in range(len(SPECIALS), config.vocab_size)]


def threads(processors: int, sentences: int) -> dict[str, int]:
    """Returns CTranslate2's options for these processors: a batch on each is faster than one batch on several."""
    batches = min(processors, sentences)
    return {"inter_threads": batches, "intra_threads": processors // batches}


def their_search(peer: Any, config: ModelConfig, source_bs: np.ndarray, beam: int) -> Callable[[], list[Any]]:
    """Returns the same for a CTranslate2 translator, in as many batches as it searches at a time."""
    names = names_of(config)
    sources = [[names[i] for i in row] for row in source_bs]
    return lambda: peer.translate_batch(
        sources,
        max_batch_size=-(-len(sources) // peer.num_translators),
        beam_size=beam,
        length_penalty=0.6,
        max_decoding_length=TOKENS,
        min_decoding_length=TOKENS,
        suppress_sequences=[["<pad>"], ["<s>"]],
        return_scores=True,
    )


def ctranslate2_model(config: ModelConfig, params: Any, folder: str, stored: str = "float32", **options: Any) -> Any:
    """Returns a CTranslate2 translator with our weights, stored in a type; `options` are those of its `Translator`.

    Raises:
      UserError: CTranslate2 is not installed.
    """
    try:
        import ctranslate2

        from vaswani.infer.convert.ctranslate2 import specification
    except ImportError as error:
        raise UserError("this needs CTranslate2: pip install -e '.[bench]'") from error
    spec = specification(config, jax.tree.map(np.array, params))
    spec.register_source_vocabulary(names_of(config))
    spec.register_target_vocabulary(names_of(config))
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    spec.optimize(stored)
    Path(folder).mkdir(exist_ok=True)
    spec.save(folder)
    return ctranslate2.Translator(folder, **options)


class Sample(NamedTuple):
    """One timed run: wall seconds, and the number of processors that it used."""

    seconds: float
    cpus: float


def timed(work: Callable[[], Any]) -> Sample:
    """Times one run of `work`."""
    wall_before = time.perf_counter()
    cpu_before = time.process_time()
    work()
    wall = time.perf_counter() - wall_before
    cpu = time.process_time() - cpu_before
    return Sample(wall, cpu / wall)


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if options.workdir is None:
        time_one_batch(options)
        return
    from lab.benchmarks import real_text

    if options.contender:
        real_text.serve(options)
    else:
        real_text.main(options)


def check(options: Any) -> None:
    """Raises a `UserError` unless a run and the file that it is to translate are given together."""
    if bool(options.workdir) != bool(options.source):
        raise UserError("--workdir and --source go together: a trained run, and the file that it is to translate")
    if (options.reference or options.single) and not options.source:
        raise UserError("--reference and --single are for the lines of --source: give that and --workdir, too")


def time_one_batch(options: Any) -> None:
    """Prints the times of one batch of random weights."""
    config = ModelConfig(vocab_size=options.vocab_size)
    params, source_bs = problem(config, options.sentences)
    sizes: dict[str, int] = {}
    searches: dict[str, Callable[[], Any]] = {"ours": our_search(config, params, source_bs, options.beam)}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("float32", "int8"):
            path = Path(folder) / kind
            own = {"device": "cpu", "compute_type": kind} | threads(cpus(), options.sentences)
            peer = ctranslate2_model(config, params, str(path), kind, **own)
            searches[f"ctranslate2 {kind}"] = their_search(peer, config, source_bs, options.beam)
            sizes[kind] = (path / "model.bin").stat().st_size
        first = {name: search() for name, search in searches.items()}  # not timed: it compiles, or allocates
        _print_agreement(config, params, source_bs, first["ours"], first["ctranslate2 float32"])
        samples: dict[str, list[Sample]] = {name: [] for name in searches}
        for _ in range(options.rounds):
            for name, search in searches.items():
                samples[name].append(timed(search))
    medians = _print_medians(samples)
    print(f"size of CTranslate2's int8 file / float32: {sizes['int8'] / sizes['float32']:.2f}")
    for kind in sizes:
        print(f"CTranslate2 {kind} time / ours: {medians[f'ctranslate2 {kind}'] / medians['ours']:.2f}")


def _print_agreement(config: ModelConfig, params: Any, source_bs: np.ndarray, found: Any, results: list[Any]) -> None:
    """Prints how many tokens both wrote, and how far CTranslate2's log-probabilities are from those of our model."""
    our_lengths = {int(length) for length in found.lengths_bm[:, 0] - 1}
    their_lengths = {len(result.hypotheses[0]) for result in results}
    numbers = {name: i for i, name in enumerate(names_of(config))}
    rows = [[numbers[name] for name in result.hypotheses[0]] for result in results]
    target_bt = np.array(rows, np.int32)
    log_probs_bt = forced_log_probs(Transformer(config), params, jnp.asarray(source_bs), jnp.asarray(target_bt))
    forced_b = jnp.sum(log_probs_bt, axis=1)
    reported_b = np.array([result.scores[0] for result in results]) * TOKENS**0.6  # without the length penalty
    error = float(np.max(np.abs(forced_b / reported_b - 1)))
    print(
        f"tokens written, ours and CTranslate2's: {our_lengths}, {their_lengths}; its log-probabilities under our "
        f"model: {error:.1e} off"
    )


def _print_medians(samples: dict[str, list[Sample]]) -> dict[str, float]:
    """Prints a line for each contender; returns the median seconds of the rounds that had the processors."""
    medians: dict[str, float] = {}
    for name, runs in samples.items():
        most = max(sample.cpus for sample in runs)  # its own: not every search keeps all processors busy
        kept = [sample.seconds for sample in runs if sample.cpus >= 0.9 * most]
        medians[name] = statistics.median(kept)
        had = " ".join(f"{sample.cpus:.2f}" for sample in runs)
        print(f"{name}: median {1e3 * medians[name]:.0f} ms, {len(kept)} of {len(runs)} rounds kept; cpus {had}")
    return medians


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 9, "timed runs of each", lower_bound=1)
    flags.DEFINE_integer("sentences", 8, "sentences in the batch", lower_bound=1)
    flags.DEFINE_integer("beam", 4, "beam size of both", lower_bound=1)
    flags.DEFINE_integer("vocab_size", 16_384, "subwords", lower_bound=len(SPECIALS) + 1)
    flags.DEFINE_string("workdir", None, "folder of a trained run")
    flags.DEFINE_string("source", None, "file of the sentences that it is to translate, one a line")
    flags.DEFINE_string("reference", None, "file of their translations, for BLEU")
    flags.DEFINE_bool("single", False, "with --workdir: translate each line in a separate call")
    flags.DEFINE_multi_string("contender", None, "internal: translate as this one (engine, arithmetic, threads)")
    flags.DEFINE_string("exported", None, "internal: folder of the run as CTranslate2's models")
    run(main, hint="a run is given as --workdir=DIR", check=check)
