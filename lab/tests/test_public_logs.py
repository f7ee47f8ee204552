"""The public logs: parameters, initial values, batches, the rule, and a training that stops and goes on."""

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from lab.studies.public_logs import parts, study, text
from lab.studies.public_logs.design import LOGS, SEEDS, get_config
from lab.studies.public_logs.published import LOGS as PUBLISHED
from lab.studies.public_logs.rule import CURVES, compared, curve_bands, end_bands, misses
from lab.studies.public_logs.train import objective_of, read_corpus, train
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS
from vaswani.model.config import ModelConfig
from vaswani.paper.records import Records, find_records
from vaswani.tasks.config import model_config

WORDS = {"A": (7853, 5893), "B": (7853, 5893), "C": (19214, 10837)}  # of source and target, as the notebooks print
PARAMETERS = {"A": 9_038_341, "B": 55_205_125, "C": 33_570_389}
NOUNS = ("hund", "katze", "kind", "mann", "frau")


def config_of(name: str) -> ModelConfig:
    source, target = WORDS[name]
    return model_config(get_config(name), target, source)


# The model


@pytest.mark.parametrize("name", LOGS)
def test_each_model_has_as_many_parameters_as_its_log(name: str) -> None:
    shapes = jax.eval_shape(lambda key: parts.init_params(LOGS[name], config_of(name), key), jax.random.key(0))
    assert sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes)) == PARAMETERS[name]
    assert PARAMETERS[name] in [run.parameters for run in PUBLISHED[name]] or name == "C"


def test_the_stacks_of_the_tutorial_have_as_many_parameters_as_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    shapes = jax.eval_shape(lambda key: parts.init_params(LOGS["C"], config_of("C"), key), jax.random.key(0))
    ours = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves((shapes["encoder"], shapes["decoder"])))
    theirs = torch.nn.Transformer(512, 8, 3, 3, 512, batch_first=True, device="meta")
    assert ours == sum(parameter.numel() for parameter in theirs.parameters())


def test_the_model_of_pytorchs_layers_has_the_published_size_and_hides_padding_and_the_future() -> None:
    torch = pytest.importorskip("torch")
    from lab.studies.public_logs.torch_beside import Translator

    model = Translator(*WORDS["A"]).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS["A"]
    short = model(torch.tensor([[1, 5, 2]]), torch.tensor([[1, 7, 8]]))
    other = model(torch.tensor([[1, 5, 2, 0, 0]]), torch.tensor([[1, 7, 9]]))
    torch.testing.assert_close(short[:, :2], other[:, :2], atol=1e-5, rtol=0)


@pytest.mark.parametrize("packs", [False, True])
def test_initial_values_reach_as_far_as_those_of_pytorch(packs: bool) -> None:
    torch = pytest.importorskip("torch")
    nn = torch.nn
    torch.manual_seed(0)
    config = ModelConfig(60, source_vocab_size=90, d_model=64, d_ff=48, h=4, d_k=16, d_v=16)
    attention = nn.MultiheadAttention(64, 4)
    inner, outer, out = nn.Linear(64, 48), nn.Linear(48, 64), nn.Linear(64, 60)
    square = nn.Linear(64, 64)
    embed = nn.Embedding(90, 64)
    for module in (attention, inner, outer, out, square, embed):
        for parameter in module.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
    projection = attention.in_proj_weight if packs else square.weight
    bias_of_heads = attention.in_proj_bias if packs else square.bias
    bias_of_output = attention.out_proj.bias if packs else square.bias
    theirs = {
        **dict.fromkeys(("wq", "wk", "wv"), ((64, 4, 16), projection)),
        "wo": ((4, 16, 64), attention.out_proj.weight),
        **dict.fromkeys(("bq", "bk", "bv"), ((4, 16), bias_of_heads)),
        "bo": ((64,), bias_of_output),
        "w1": ((64, 48), inner.weight),
        "b1": ((48,), inner.bias),
        "w2": ((48, 64), outer.weight),
        "b2": ((64,), outer.bias),
        "softmax": ((60, 64), out.weight),
        "output_bias": ((60,), out.bias),
        "source_embed": ((90, 64), embed.weight),
    }
    for name, (shape, values) in theirs.items():
        bound = parts.bound(name, shape, config, packs)
        assert bound is not None
        farthest = float(values.detach().abs().max())
        # Of 48 uniform values or more the farthest is in the last tenth.
        assert 0.9 * bound <= farthest <= bound + 1e-7, name


def test_parameters_fill_their_bounds_and_norms_begin_as_the_identity() -> None:
    config = ModelConfig(60, source_vocab_size=90, N=1, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, biases=True)
    params = parts.init_params(LOGS["C"], config, jax.random.key(0))
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = path[-1].key
        bound = parts.bound(name, leaf.shape, config, True)
        if bound is None:
            assert np.all(leaf == (1.0 if name == "scale" else 0.0))
        else:
            assert float(np.abs(leaf).max()) == pytest.approx(bound, rel=0.12)


def test_a_shared_norm_is_one_norm_in_all_places() -> None:
    params = {name: {"layer_0": {"norm_1": 1, "norm_2": 2, "mixer": 0}} for name in ("encoder", "decoder")}
    params["decoder"]["layer_0"] |= {"norm_3": 3, "cross_attention": 0}
    kept = parts.keep_first_norm(params)
    assert kept["decoder"]["layer_0"] == {"norm_1": 1, "mixer": 0, "cross_attention": 0}
    spread = parts.spread_norms(kept)
    assert spread["encoder"]["layer_0"] == {"norm_1": 1, "norm_2": 1, "mixer": 0}
    assert spread["decoder"]["layer_0"] == {"norm_1": 1, "norm_2": 1, "norm_3": 1, "mixer": 0, "cross_attention": 0}


# Batches


def test_lengths_are_compared_by_their_interleaved_bits() -> None:
    # 3 is 11 and 1 is 01: 1011 of (3, 1), and 0111 of (1, 3).
    assert list(text.interleaved(np.array([(3, 1), (1, 3), (2, 2)]))) == [0b1011, 0b0111, 0b1100]


@pytest.mark.parametrize("kind", ["random", "pools", "file"])
def test_an_epoch_has_every_pair_once_in_batches_of_128(kind: str) -> None:
    words_nk = np.random.default_rng(0).integers(1, 30, (29_000, 2))
    members = text.order(kind, words_nk, np.random.default_rng(1))
    assert len(members) == 227
    assert sorted(np.concatenate(members)) == list(range(29_000))
    assert sorted({len(members_i) for members_i in members}) == [72, 128]
    # Within a batch the lengths of a pool are alike, and otherwise they are as in the corpus.
    spread = np.mean([words_nk[members_i, 0].std() for members_i in members])
    assert (spread < 4) == (kind == "pools")


def test_a_batch_has_all_of_its_pairs_and_their_marks(corpus: Path) -> None:
    split = read_corpus(tiny("A", corpus)).train
    (batch,) = text.batches(split, [np.arange(40)], 64)
    assert batch.labels_bt.shape[0] % text.ROWS_TIMES == 0
    assert int((batch.source.ids_bt == BOS).sum()) == int((batch.labels_bt == EOS).sum()) == 40
    assert int((batch.source.ids_bt == EOS).sum()) == int((batch.target.ids_bt == BOS).sum()) == 40


# The rule


def planted(log: str) -> dict[str, Any]:
    """Returns a run in the middle of every published range."""
    curves = {curve: [(band.low + band.high) / 2 for band in curve_bands(log, curve)] for curve in CURVES}
    return curves | {what: (band.low + band.high) / 2 for what, band in end_bands(log).items()}


def verdict_of(log: str, *changed: tuple[str, int, float]) -> tuple[str, list[str]]:
    """Judges three runs, of which seed 1 has other values in these places of its curves."""
    seeds = {seed: planted(log) for seed in SEEDS}
    for curve, epoch, value in changed:
        seeds[1][curve][epoch - 1] = value
    return study.verdict(log, seeds).word, misses(log, seeds)


@pytest.mark.parametrize("log", LOGS)
def test_runs_inside_every_range_meet_a_log(log: str) -> None:
    assert verdict_of(log) == ("met", [])
    assert study.verdict(log, {seed: planted(log) for seed in SEEDS[:2]}).word == "open"


def test_a_run_that_has_not_all_epochs_is_compared_as_far_as_it_goes_and_has_no_verdict() -> None:
    seeds = {seed: planted("A") for seed in SEEDS}
    # Four epochs of seed 2, the last of them outside; so are its ends, which count for nothing.
    train = seeds[2]["train"][:4]
    valid = [*seeds[2]["valid"][:3], 9.0]
    seeds[2] = {"train": train, "valid": valid, "test": 9.0, "bleu": 0.0}
    assert (compared("A", seeds), study.verdict("A", seeds).word) == (22 + 22 + 8, "open")
    assert [miss.partition(":")[0] for miss in misses("A", seeds)] == ["valid, epoch 4, seed 2"]
    assert study.summary(records_of(seeds)).rows[0][4] == "1.672, 1.672"
    fourth, fifth = study.tables(records_of(seeds))[1].rows[3:5]
    assert fourth[7:] == ("1.817", "1.817", "9.000", "no")
    assert fifth[7:] == ("1.713", "1.713", "not run", "yes")


def test_one_epoch_outside_is_named_with_its_side() -> None:
    # The published range of the second epoch is 2.813 to 2.824, and on validation 2.289 to 2.317.
    assert verdict_of("A", ("train", 2, 2.8535), ("valid", 2, 2.2595)) == ("met", [])
    assert verdict_of("A", ("train", 2, 2.856)) == ("not met", ["train, epoch 2, seed 1: 0.002 above"])
    assert verdict_of("A", ("valid", 2, 2.256)) == ("not met", ["valid, epoch 2, seed 1: 0.003 below"])
    assert verdict_of("A", ("train", 10, math.nan))[0] == "not met"


def test_the_ends_have_margins_of_their_own() -> None:
    run = planted("A")
    assert misses("A", {0: run | {"test": 1.7015, "bleu": 37.0}}) == []
    outside = misses("A", {0: run | {"test": 1.64, "bleu": 37.2}})
    assert outside == ["test, seed 0: 0.002 below", "bleu, seed 0: 0.07 above"]


def records_of(seeds: dict[int, dict[str, Any]]) -> Records:
    """Returns these runs of A, by seed, as records."""
    about = {"device": {"kind": "cpu", "count": 1, "cpus": 2, "cpu": ""}, "git": [None], "hours": 0.5}
    run_of = {"study": "public_logs", "log": "A", "order": "random"} | about
    return Records([], [], [], [], [run_of | run | {"seed": seed} for seed, run in seeds.items()])


def test_pytorchs_losses_stand_beside_ours_and_change_no_verdict() -> None:
    records = records_of({seed: planted("A") for seed in SEEDS})
    without = study.tables(records)
    above = [loss + 0.25 for loss in planted("A")["valid"]]
    pytorch = planted("A") | {"study": "torch_beside", "log": "A", "seed": 4, "valid": above, "minutes": 57.4}
    records.of_studies.append(pytorch)
    summary, of_a, of_b, _ = study.tables(records)
    assert summary == without[0]
    assert of_b == without[2]
    row = dict(zip(of_a.head, of_a.rows[9], strict=True))
    assert row["training: PyTorch's layers, seed 4"] == row["training: seed 0"]
    assert float(row["validation: PyTorch's layers, seed 4"]) == pytest.approx(float(row["validation: seed 0"]) + 0.25)
    # The published runs of other norms do not count.
    both = np.array([run.valid[4:] for run in PUBLISHED["A"][:2]]).mean()
    ours = np.mean(planted("A")["valid"][4:]) - both
    assert f"ours {ours:+.3f}, {ours:+.3f}, {ours:+.3f}; " in of_a.notes[1].replace("−", "-")
    assert of_a.notes[1].replace("−", "-").endswith(f"{ours + 0.25:+.3f}")
    assert of_a.notes[2] == "cost of PyTorch's seed 4: 57 minutes"


def test_records_become_tables_cards_and_a_figure(tmp_path: Path) -> None:
    records = records_of({seed: planted("A") for seed in SEEDS})
    other = records.of_studies[0] | {"order": "pools", "test": 9.0}
    lines = [json.dumps(record) for record in [*records.of_studies, other]]
    (tmp_path / "records.jsonl").write_text("\n".join(lines) + "\n")
    records = find_records(tmp_path)
    summary, of_a, of_b, _ = study.tables(records)
    row = dict(zip(summary.head, summary.rows[0], strict=True))
    assert row["numbers inside the widened range"] == "66 of 66"
    assert row["test loss: ours, by seed"] == "1.672, 1.672, 1.672"
    assert row["cost"] == "0.50 h, 1 x cpu (2 cores)"
    assert of_a.rows[0][:6] == ("1", "4.222 to 4.226", "4.224", "4.224", "4.224", "yes")
    assert of_b.rows[0][2:6] == ("not run",) * 4
    assert [card.verdict for card in study.cards(records)] == ["met", "not run", "not run"]
    study.plot(records, tmp_path / "ours.svg")
    study.plot(Records([], [], [], []), tmp_path / "empty.svg")
    assert (tmp_path / "ours.svg").stat().st_size > (tmp_path / "empty.svg").stat().st_size


# Training


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Returns a folder with forty pairs, and ten for validation and test each, some of whose words are unknown."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, count in (("train", 40), ("valid", 10), ("test2016", 10)):
        lines = [f"Der {NOUNS[n % 5]} und die {NOUNS[n % 3]} sehen {n} ." for n in range(count)]
        for language in ("de", "en"):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    return folder


def tiny(name: str, corpus: Path) -> ConfigDict:
    cfg = get_config(f"{name}:{corpus}")
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 1, 16, 16
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 2, 8, 8
    return cfg


def test_words_that_occur_once_are_unknown_and_lower_case_is_of_the_notebook_alone(corpus: Path) -> None:
    known = {name: read_corpus(tiny(name, corpus)).tokenizer.target for name in LOGS}
    assert known["A"].pieces(known["A"].encode("der Der 39")) == ["der", "<unk>", "<unk>"]
    assert known["C"].pieces(known["C"].encode("der Der 39")) == ["<unk>", "Der", "39"]


def test_translations_have_at_most_fifty_tokens(corpus: Path) -> None:
    cfg = tiny("B", corpus)
    model = objective_of(LOGS["B"], cfg, read_corpus(cfg)).model
    limits_b, steps = model.output_limits(jnp.ones((2, 3), jnp.int32), 0)
    assert (limits_b.tolist(), steps) == ([50, 50], 50)


@pytest.mark.parametrize("name", ["B", "C"])
def test_a_run_that_is_stopped_goes_on_as_if_it_had_not_been(name: str, corpus: Path, tmp_path: Path) -> None:
    cfg = tiny(name, corpus)
    whole = train(LOGS[name], cfg, tmp_path / "whole", 2)
    train(LOGS[name], cfg, tmp_path / "stopped", 1)
    resumed = train(LOGS[name], cfg, tmp_path / "stopped", 2)
    assert whole | {"seconds": 0} == resumed | {"seconds": 0}
    assert len(whole["train"]) == len(whole["valid"]) == 2
    assert whole["train"][1] < whole["train"][0]
    with pytest.raises(UserError, match="its run has the order"):
        train(LOGS[name]._replace(order="pools"), cfg, tmp_path / "stopped", 2)
