"""Times beam search against CTranslate2 in float32: the base model, the same weights, the same 20-token sentences.

pip install -e '.[bench]'
GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python -m benchmarks.decoding [--rounds=9] [--sentences=8] [--beam=4]

Random weights are copied into a CTranslate2 model with the same sinusoids; scoring its outputs with our model checks
that the two are the same. EOS is suppressed, in CTranslate2 by an option and here by a zero embedding, so that both
write 20 tokens; ours then takes one more step for the forced EOS. Rounds alternate between the two; a round that got
less than 90 % of the processors is dropped, since the machine may be shared. Compilation is excluded. The last line is
the ratio of medians.
"""

import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from base.ids import EOS
from model.config import ModelConfig
from model.positions import sinusoids
from model.search.beam import beam_search
from model.search.scoring import forced_log_probs
from model.transformer import Transformer, init_params

TOKENS = 20
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]


def problem(config: ModelConfig, sentences: int) -> tuple[Any, np.ndarray]:
    """Returns random parameters that never end a sentence, and sources of 20 random tokens."""
    params = init_params(config, jax.random.key(0))
    source_bs = np.random.default_rng(0).integers(len(SPECIALS), config.vocab_size, (sentences, TOKENS), np.int32)
    source_bs[:, -1] = EOS
    return params | {"embed": params["embed"].at[EOS].set(0.0)}, source_bs


def our_search(config: ModelConfig, params: Any, source_bs: np.ndarray, beam: int) -> Callable[[], Any]:
    """Returns a function that searches and waits for the result."""
    search = jax.jit(functools.partial(beam_search, Transformer(config), beam=beam, alpha=0.6, extra_length=1))
    return lambda: jax.block_until_ready(search(params, source_bs))


def names_of(config: ModelConfig) -> list[str]:
    """Returns CTranslate2's names for our ids."""
    return SPECIALS + [f"t{i}" for i in range(len(SPECIALS), config.vocab_size)]


def their_search(peer: Any, config: ModelConfig, source_bs: np.ndarray, beam: int) -> Callable[[], list[Any]]:
    """Returns the same for a CTranslate2 translator."""
    names = names_of(config)
    sources = [[names[i] for i in row] for row in source_bs]
    return lambda: peer.translate_batch(
        sources,
        beam_size=beam,
        length_penalty=0.6,
        max_decoding_length=TOKENS,
        min_decoding_length=TOKENS,
        suppress_sequences=[["<pad>"], ["<s>"]],
        return_scores=True,
    )


def ctranslate2_model(config: ModelConfig, params: Any, folder: str, **options: Any) -> Any:
    """Returns a CTranslate2 translator with our weights; `options` are those of its `Translator`."""
    import ctranslate2

    spec = ctranslate2.specs.TransformerSpec.from_config(config.N, config.h, pre_norm=False)
    positions = np.asarray(sinusoids(jnp.arange(256)[None], config.d_model)[0])
    ours = jax.tree.map(np.asarray, params)

    def flat_in(weight: np.ndarray) -> np.ndarray:
        return weight.reshape(config.d_model, -1).T

    def norm(spec: Any, ours: dict) -> None:
        spec.gamma, spec.beta = ours["scale"], ours["bias"]

    def linear(spec: Any, weight: np.ndarray, bias: np.ndarray | None = None) -> None:
        spec.weight = np.ascontiguousarray(weight)
        spec.bias = np.zeros(weight.shape[0], np.float32) if bias is None else bias

    def attention(spec: Any, ours: dict, self_attention: bool) -> None:
        q, k, v = (flat_in(ours[name]) for name in ("wq", "wk", "wv"))
        stacks = [np.concatenate([q, k, v])] if self_attention else [q, np.concatenate([k, v])]
        for target, weight in zip(spec.linear, [*stacks, ours["wo"].reshape(-1, config.d_model).T], strict=True):
            linear(target, weight)

    def feed_forward(spec: Any, ours: dict) -> None:
        linear(spec.linear_0, ours["w1"].T, ours["b1"])
        linear(spec.linear_1, ours["w2"].T, ours["b2"])

    for side in ("encoder", "decoder"):
        stack = getattr(spec, side)
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = ours["embed"]
        embeddings.multiply_by_sqrt_depth = True
        stack.scale_embeddings = True
        stack.position_encodings.encodings = positions
        for n, layer in enumerate(stack.layer):
            mine = ours[side][f"layer_{n}"]
            attention(layer.self_attention, mine["self_attention"], True)
            norm(layer.self_attention.layer_norm, mine["norm_1"])
            if side == "decoder":
                attention(layer.attention, mine["cross_attention"], False)
                norm(layer.attention.layer_norm, mine["norm_2"])
            feed_forward(layer.ffn, mine["feed_forward"])
            norm(layer.ffn.layer_norm, mine["norm_3" if side == "decoder" else "norm_2"])
    linear(spec.decoder.projection, ours["embed"])

    spec.register_source_vocabulary(names_of(config))
    spec.register_target_vocabulary(names_of(config))
    spec.config.add_attribute("layer_norm_epsilon", 1e-6)
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    spec.save(folder)
    return ctranslate2.Translator(folder, **options)


class Sample(NamedTuple):
    """One timed run: wall seconds, and the number of processors that it used."""

    seconds: float
    cpus: float


def timed(work: Callable[[], Any]) -> Sample:
    """Times one run of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Sample(wall, cpu / wall)


def main(argv: list[str]) -> None:
    """Runs the benchmark; flags below."""
    options = flags.FLAGS
    config = ModelConfig(vocab_size=options.vocab_size)
    params, source_bs = problem(config, options.sentences)

    with tempfile.TemporaryDirectory() as folder:
        peer = ctranslate2_model(config, params, folder, device="cpu", compute_type="float32", intra_threads=2)
        ours, theirs = (
            our_search(config, params, source_bs, options.beam),
            their_search(peer, config, source_bs, options.beam),
        )

        found, results = ours(), theirs()
        lengths = set(map(int, found.lengths_bm[:, 0] - 1)), {len(result.hypotheses[0]) for result in results}
        numbers = {name: i for i, name in enumerate(names_of(config))}
        target_bt = np.array([[numbers[name] for name in result.hypotheses[0]] for result in results], np.int32)
        forced_b = jnp.sum(forced_log_probs(Transformer(config), params, source_bs, target_bt), axis=1)
        reported_b = np.array([result.scores[0] for result in results]) * TOKENS**0.6
        error = float(np.max(np.abs(forced_b / reported_b - 1)))
        print(
            f"tokens written, ours and CTranslate2's: {lengths}; its log-probabilities under our model: {error:.1e} off"
        )

        samples: dict[str, list[Sample]] = {"ours": [], "ctranslate2": []}
        for _ in range(options.rounds):
            samples["ours"].append(timed(ours))
            samples["ctranslate2"].append(timed(theirs))
    most = max(sample.cpus for runs in samples.values() for sample in runs)
    medians = {}
    for name, runs in samples.items():
        kept = [sample.seconds for sample in runs if sample.cpus >= 0.9 * most] or [sample.seconds for sample in runs]
        medians[name] = statistics.median(kept)
        cpus = " ".join(f"{sample.cpus:.2f}" for sample in runs)
        print(f"{name}: median {1e3 * medians[name]:.0f} ms, {len(kept)} of {len(runs)} rounds kept; cpus {cpus}")
    print(f"CTranslate2 float32 time / ours: {medians['ctranslate2'] / medians['ours']:.2f}")


if __name__ == "__main__":
    flags.DEFINE_integer("rounds", 9, "timed runs of each")
    flags.DEFINE_integer("sentences", 8, "sentences in the batch")
    flags.DEFINE_integer("beam", 4, "beam size of both")
    flags.DEFINE_integer("vocab_size", 16_384, "subwords")
    app.run(main)
