"""Masked language modelling: what is hidden, what the model sees, training, resuming, scores, filling, mistakes."""

import io
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sentencepiece
from ml_collections import ConfigDict

from tests import commands, tolerance
from tests.tiny import given_tokenizer, shrink
from tests.trainings import assert_resumes_to_the_same_bits, refusal
from vaswani.configs.common import default
from vaswani.configs.masked_lm import get_config
from vaswani.data.batching import make_batch
from vaswani.data.corrupt import MASK, Corrupted, Masking, corruption
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import ProcessShard, TrainingBatches
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS, PAD
from vaswani.infer.evaluate import predictions as evaluation
from vaswani.infer.runs import Run, open_run
from vaswani.infer.texts.blanks import fill, fill_stream, masked
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.parameters import init_params
from vaswani.run.records import read_metrics
from vaswani.run.sharding import make_mesh
from vaswani.tasks.masked_lm import objective
from vaswani.tasks.texts import hidden_signatures
from vaswani.tokens import Tokens
from vaswani.train import loop
from vaswani.train.check import check
from vaswani.train.job import open_job

LINES = ["the dog sleeps", "the cat sees the dog", "to be or not to be"] * 20

WORDS = ("to", "be", "or", "not")


def tiny(folder: Path) -> ConfigDict:
    """The config, small, on a text of its own in `folder`, of which every line is one word several times."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 120), ("valid", 12)):
        lines = [" ".join([rng.choice(WORDS)] * rng.integers(4, 12)) for _ in range(count)]
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    cfg = get_config()
    cfg.data.train, cfg.data.valid, cfg.data.test = f"lines:{folder}/train.txt", f"lines:{folder}/valid.txt", ""
    shrink(cfg, folder, length=32, vocab_size=276)
    cfg.model.update({"d_model": 32, "d_k": 16, "d_v": 16, "max_positions": 32})
    cfg.optim.update({"lr": 1e-2, "warmup": 10})
    cfg.decode.checkpoint = "latest"
    cfg.steps, cfg.eval.every, cfg.log_every, cfg.checkpoint.every = 60, 60, 60, 37  # 37 updates end within an epoch
    return cfg


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("masked_lm")
    assert loop.train(tiny(folder), folder / "run") == 0
    return open_run(folder / "run", "latest", task="masked_lm")


def test_fifteen_in_a_hundred_are_chosen_and_of_these_80_10_10() -> None:
    masking, rng, ids = Masking(0.15, 50), np.random.default_rng(0), np.arange(101) % 40 + 4
    ids[-1] = EOS
    seen = np.zeros(3)
    for _ in range(300):
        corrupted, hidden = masking.corrupt(ids, rng)
        chosen = hidden != PAD
        assert chosen.sum() == 15 and not chosen[-1]
        np.testing.assert_array_equal(hidden[chosen], ids[chosen])
        np.testing.assert_array_equal(corrupted[~chosen], ids[~chosen])
        kinds = corrupted[chosen]
        seen += [(kinds == MASK).sum(), ((kinds != MASK) & (kinds != ids[chosen])).sum(), (kinds == ids[chosen]).sum()]
    # One in 46 of those replaced is by chance the same; three standard deviations.
    np.testing.assert_allclose(seen / seen.sum(), [0.8, 0.1 * 45 / 46, 0.1 + 0.1 / 46], atol=3 * (0.16 / 4500) ** 0.5)
    for short in ([EOS], [7, EOS]):
        corrupted, hidden = masking.corrupt(np.array(short), rng)
        assert (hidden != PAD).sum() == len(short) - 1 and len(corrupted) == len(short)


def test_a_chosen_token_may_become_any_other_that_is_not_special() -> None:
    masking, rng, ids = Masking(0.9, 12), np.random.default_rng(0), np.array([*[4] * 50, EOS])
    found = [masking.corrupt(ids, rng)[0][:-1] for _ in range(40)]  # some 180 of the 2,000 are replaced, by one of 8
    assert set(np.concatenate(found).tolist()) == {MASK, *range(4, 12)}


def test_hidden_tokens_are_anywhere_and_their_number_is_rounded() -> None:
    masking, rng = Masking(0.15, 50), np.random.default_rng(0)
    hidden = sum((masking.corrupt(np.array([*[9] * 100, EOS]), rng)[1] != PAD).astype(int) for _ in range(300))
    assert hidden[:-1].min() >= 20 and hidden[-1] == 0  # of 300 draws each of 100 tokens is in 45 on average
    for words in (11, 12):  # 1.65 and 1.8
        assert (masking.corrupt(np.array([*[9] * words, EOS]), rng)[1] != PAD).sum() == 2


def test_what_is_hidden_depends_on_seed_epoch_and_record_alone(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    tokenizer, text, _ = prepare_all(cfg.data, sides=1)
    masking = Masking(0.15, tokenizer.vocab_size)
    first = [tuple(map(tuple, pair)) for pair in Corrupted(text, masking, 1).records(range(20), 3)]
    again = [tuple(map(tuple, Corrupted(text, masking, 1).records([i], 3)[0])) for i in reversed(range(20))]
    assert first == again[::-1]
    for other in (Corrupted(text, masking, 2).records(range(20), 3), Corrupted(text, masking, 1).records(range(20), 4)):
        assert sum(pair == tuple(map(tuple, more)) for pair, more in zip(first, other, strict=True)) < 10
    whole, left, right = (
        TrainingBatches(Corrupted(text, masking), cfg.data, seed=0, shard=shard)
        for shard in (ProcessShard(0, 1, 1, 2), ProcessShard(0, 1, 2, 2), ProcessShard(1, 2, 2, 2))
    )
    epoch = len(whole.plan(0))
    for number in range(epoch + 2):  # into the next epoch
        everything, *parts = next(whole), next(left), next(right)
        both = jax.tree.map(lambda *x: np.concatenate(x), *parts)
        jax.tree.map(np.testing.assert_array_equal, everything, both)
        assert whole.get_state() == {"epoch": (number + 1) // epoch, "batch": (number + 1) % epoch}
    for batches in (whole, left, right):
        batches.close()


def test_every_epoch_is_read_as_it_is_corrupted_in_that_epoch(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    tokenizer, text, _ = prepare_all(cfg.data, sides=1)
    corrupted = Corrupted(text, Masking(0.15, tokenizer.vocab_size), 1)
    batches = TrainingBatches(corrupted, cfg.data, seed=0)
    for epoch in (0, 1):
        for planned in batches.plan(epoch):
            records = corrupted.records(planned.rows_bc[planned.rows_bc >= 0], epoch)
            jax.tree.map(np.testing.assert_array_equal, next(batches), make_batch(records, planned))
    batches.close()


@pytest.mark.slow
def test_it_sees_both_sides_and_only_its_own_sentence(trained: Run) -> None:
    model, params = MaskedLM(trained.model_config), jax.tree.map(jnp.asarray, trained.params)
    ids = jnp.asarray([[7, 8, MASK, 9, 10, 11]])
    packed = Tokens(ids, jnp.asarray([[1, 1, 1, 1, 2, 2]]), jnp.asarray([[0, 1, 2, 3, 0, 1]]))

    def at_mask(embed: jax.Array) -> jax.Array:
        return model.apply({"params": params | {"embed": embed}}, packed, method="encode")[0, 2]

    influence = np.abs(jax.jit(jax.jacrev(at_mask))(params["embed"])).max(axis=(0, 2))[ids[0]]
    assert np.all(influence[:4] > 1e-6) and np.all(influence[4:] == 0)


@pytest.mark.slow
def test_the_loss_counts_chosen_positions_only(trained: Run) -> None:
    batches = TrainingBatches(*_corrupted(trained), seed=0)
    batch, cfg = next(batches), trained.model_config
    batches.close()
    loss = jax.jit(objective(cfg, 0.0).loss, static_argnums=2)(trained.params, batch, None)
    logits = jax.jit(MaskedLM(cfg).apply)({"params": trained.params}, batch.source)
    log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    chosen = np.argwhere(batch.labels_bt != PAD)
    expected = -sum(log_probs[b, t, batch.labels_bt[b, t]] for b, t in chosen)
    assert float(loss.tokens) == len(chosen) < 0.25 * (batch.source.ids_bt != PAD).sum()
    assert float(loss.nll_sum) == pytest.approx(expected, abs=1e-6 * len(chosen))  # rounding of each token's


def test_runs_of_other_seeds_are_validated_on_the_same_tokens_and_trained_on_others(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    validated, trained_on = [], []
    for seed in (1, 2):
        cfg.seed = seed
        made = open_job(cfg, tmp_path, make_mesh(cfg.mesh, jax.devices()[:1]))
        validated.append(list(made.validation_batches()))
        trained_on.append(next(made.batches))
        made.batches.close()
    jax.tree.map(np.testing.assert_array_equal, *validated)
    assert np.any(trained_on[0].labels_bt != trained_on[1].labels_bt)


def _corrupted(run: Run) -> tuple[Corrupted, ConfigDict]:
    tokenizer, text, _ = prepare_all(run.config.data, run.workdir / "tokenizer.model", sides=1)
    return Corrupted(text, Masking(0.15, tokenizer.vocab_size)), run.config.data


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(trained: Run, tmp_path: Path) -> None:
    assert_resumes_to_the_same_bits(tiny(trained.workdir.parent), trained.workdir, tmp_path)


def test_it_learns_and_is_scored_as_while_training(trained: Run) -> None:
    record = evaluation.evaluate(trained, "valid")
    validated = [one for one in read_metrics(trained.workdir) if one["kind"] == "valid"]
    rounding = tolerance.log_prob(trained.model_config, record["tokens"])
    assert validated[-1]["nll"] == pytest.approx(record["nll"], rel=0, abs=rounding)
    assert record["perplexity"] == pytest.approx(math.exp(record["nll"]))
    assert record["accuracy"] > 0.5 and record["nll"] < 2
    with pytest.raises(
        UserError, match=r"^--split=test: the run's config has no data\.test; name a corpus with --corpus=SPEC$"
    ):
        evaluation.evaluate(trained, "test")


def test_blanks_are_filled(trained: Run) -> None:
    assert fill(trained, trained.params, "be ___ be be ___ be") == "be be be be be be"
    assert fill(trained, trained.params, "___ or or or or") == "or or or or or"
    assert fill(trained, trained.params, "  nothing to fill ") == "  nothing to fill "

    pieces = trained.tokenizer.pieces(masked(trained.tokenizer, "be ___,___ be___"))
    assert pieces == ["▁be", "<unk>", "<0x2C>", "<unk>", "▁be", "<unk>"]
    with pytest.raises(UserError, match="a line of 33 subwords, EOS counted; only 32 positions are learned"):
        fill(trained, trained.params, "to " * 31 + "___")


def test_no_blank_is_filled_with_part_of_a_character(trained: Run) -> None:
    untrained = init_params(MaskedLM(trained.model_config), jax.random.key(0))  # most of its subwords are bytes
    filled = [fill(trained, untrained, f"{'___ ' * number}be") for number in range(1, 6)]
    assert not any("\ufffd" in line for line in filled), filled


def test_each_line_is_filled_and_one_that_is_too_long_is_named(trained: Run) -> None:
    assert list(fill_stream(trained, [b"be ___ be be ___ be\n", b"to be\n"])) == [b"be be be be be be\n", b"to be\n"]
    assert list(fill_stream(trained, [b"to be\r\n"])) == [b"to be\n"]
    too_long = r"^standard input, line 2: a line of 33 subwords, EOS counted; only 32 positions are learned$"
    with pytest.raises(UserError, match=too_long):
        list(fill_stream(trained, [b"be\n", b"to " * 31 + b"___\n"]))


@pytest.mark.slow
def test_the_command_fills_standard_input(trained: Run) -> None:
    done = commands.run("infer.fill", f"--workdir={trained.workdir}", text="be ___ be be ___ be\nto be\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "be be be be be be\nto be\n"


@pytest.mark.slow
def test_the_command_scores_a_split(trained: Run) -> None:
    done = commands.run("infer", f"--workdir={trained.workdir}", "--split=valid", "--checkpoint=latest", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accuracy"] == evaluation.evaluate(trained, "valid")["accuracy"]


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_of_nothing_or_everything_is_one_line(rate: float) -> None:
    cfg = get_config()
    cfg.data.mask_rate = rate
    with pytest.raises(UserError, match=rf"^config: data\.mask_rate is {rate}; it must be above 0 and below 1$"):
        check(cfg, default())


def test_corpora_that_cannot_be_masked_are_one_line(tmp_path: Path) -> None:
    def said(**data: str) -> str:
        return refusal(tiny(tmp_path), tmp_path / "run", data)

    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n\n")
    assert "is empty: it has no sentences" in said(train=f"lines:{tmp_path}/empty.txt")
    assert "whose lines are all empty: there is nothing to restore" in said(valid=f"lines:{tmp_path}/blank.txt")
    assert "data.batching is window; task masked_lm reads whole lines" in said(batching="window")


@pytest.mark.parametrize(("valid", "rows"), [("The dog sleeps.", "data.train"), ("dog " * 200, "data.valid")])
def test_learned_positions_that_are_too_few_are_said_at_the_start(tmp_path: Path, valid: str, rows: str) -> None:
    cfg = tiny(tmp_path)
    cfg.model.update({"positions": "learned", "max_positions": 31 if rows == "data.train" else 32})
    (tmp_path / "valid.txt").write_text(valid)
    said = refusal(cfg, tmp_path / "run", {})
    assert said.startswith("config: model.max_positions is 3") and said.endswith(f"as long as the rows of {rows}")


def test_a_line_that_fits_the_learned_positions_is_scored_whatever_the_buckets_are(
    trained: Run, tmp_path: Path
) -> None:
    import dataclasses

    line = "to"
    while len(trained.tokenizer.encode(line)) < 33:
        line += " be"
    (tmp_path / "text.txt").write_text(f"{line}\n")
    config = trained.config.copy_and_resolve_references()
    config.model.max_positions = 40  # more than the buckets, 32, and less than twice as many
    longer = trained._replace(
        config=config,
        model_config=dataclasses.replace(trained.model_config, max_positions=40),
        params=trained.params | {"positions": np.pad(trained.params["positions"], ((0, 8), (0, 0)))},
    )
    assert evaluation.evaluate(longer, f"lines:{tmp_path}/text.txt")["tokens"] > 0


def test_a_vocabulary_whose_unknown_symbols_would_be_read_as_hidden_is_refused(tmp_path: Path) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, model_type="bpe", vocab_size=50,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, minloglevel=2,
    )  # fmt: skip
    cfg = get_config()
    cfg.data.tokenizer = "own.model"
    with pytest.raises(
        UserError, match=r"^config: task is masked_lm, and the vocabulary of 'own\.model' does not spell"
    ):
        corruption("masked_lm", cfg.data, Tokenizer(model.getvalue()))
    spelled_in_bytes = Tokenizer.train(LINES, 290, tmp_path / "tokenizer.model")
    assert corruption("masked_lm", cfg.data, spelled_in_bytes) == Masking(0.15, 290)


def test_the_signature_says_how_much_is_hidden_unless_it_is_the_usual_share(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(LINES, 290, tmp_path / "tokenizer.model")
    cfg = get_config()

    def signature(task: str) -> str:
        return hidden_signatures(task, cfg, tokenizer, 9)["perplexity"]

    assert signature("masked_lm") == "unit:hidden subword|vocabulary:290|task:masked_lm"
    cfg.data.mask_rate, cfg.data.mean_span = 0.5, 2.0
    assert signature("masked_lm") == "unit:hidden subword|vocabulary:290|task:masked_lm|rate:0.5"
    assert signature("denoising") == "unit:hidden subword|vocabulary:290|task:denoising|rate:0.5|span:2"


@pytest.mark.parametrize("prefix", [True, False])
def test_the_space_before_a_blank_is_part_of_it(prefix: bool) -> None:
    tokenizer = given_tokenizer(add_dummy_prefix=prefix)
    first = tokenizer.pieces(tokenizer.encode("The"))
    assert tokenizer.pieces(masked(tokenizer, "The ___. ___")) == [*first, "<unk>", ".", "<unk>"]
