"""`python -m infer`: every key others script against, the record it keeps, and perplexity against its definition."""

import dataclasses
import functools
import importlib
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from tests import tiny
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS
from vaswani.infer import rescore
from vaswani.infer.evaluate import predictions, texts, translations
from vaswani.infer.evaluate.record import save
from vaswani.infer.evaluate.sentences import Sentences, about, headline, open_files, open_split
from vaswani.infer.options import check_output
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores import bleu
from vaswani.infer.scores.lengths import by_length
from vaswani.infer.scores.perplexity import line_log_probs, perplexity
from vaswani.infer.translate.translator import Hypothesis, Translation
from vaswani.model.transformer import Transformer
from vaswani.paper.records import newest_evaluation, read_run
from vaswani.run.parameters import params_sha256
from vaswani.search.options import Decoding
from vaswani.tokens import Tokens

command = importlib.import_module("vaswani.infer.__main__")
GREEDY = Decoding(beam=1, alpha=0.6, extra_length=3)
KEYS = {*bleu.METRICS, "perplexity", "signatures", "by_length", "seconds", "tokens_per_second", "params"}
KEYS |= {"params_sha256", "step", "checkpoints"}


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_run(tmp_path_factory.mktemp("evaluate") / "run")


@pytest.fixture(scope="module")
def run(workdir: Path) -> Run:
    return open_run(workdir, "latest")


@pytest.mark.parametrize(
    ("spec", "file", "evaluate"),
    [
        ("text:gone.{en,de}", "gone.en", open_split),
        ("lines:gone.txt", "gone.txt", texts.evaluate),
        ("lines:gone.txt", "gone.txt", functools.partial(predictions.evaluate, task="masked_lm")),
    ],
    ids=["translation", "language model", "masked language model"],
)
def test_a_corpus_that_is_gone_is_named_with_its_key(run: Run, spec: str, file: str, evaluate: Any) -> None:
    config = run.config.copy_and_resolve_references()
    with config.unlocked():
        config.data.test = spec
    gone = run._replace(config=config)
    message = rf"^data\.test of this run: {file}: no such file; --corpus=SPEC reads another$"
    with pytest.raises(UserError, match=message):
        evaluate(gone, "test")
    if evaluate is not open_split:
        with pytest.raises(UserError, match=rf"^{file}: no such file$"):
            evaluate(gone, spec)


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infer", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=Path(__file__).parents[2])


def run_here(**given: object) -> None:
    """The command line in this process: flags that are not given are None."""
    names = [
        "workdir",
        "split",
        "corpus",
        "source",
        "reference",
        "row_length",
        "checkpoint",
        "beam",
        "alpha",
        "extra_length",
        "stopping",
        "batch_tokens",
        "json",
        "output",
        "coordinator",
        "processes",
        "process",
    ]
    options = SimpleNamespace(**{**dict.fromkeys(names), "oracle_length": False, **given})
    command.check(options)
    command.main(options)


def test_split_as_json_has_every_key_and_is_kept_in_the_run(workdir: Path, tmp_path: Path):
    output = f"--output={tmp_path / 'out.de'}"
    done = run_cli(f"--workdir={workdir}", "--split=test", "--oracle_length", "--json", output)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record.keys() >= KEYS | {"oracle_match"}
    averaged = open_run(workdir, "average:3")
    assert (record["step"], record["checkpoints"], record["beam"]) == (4, [2, 3, 4], 1)
    assert record["params_sha256"] == params_sha256(averaged.params)
    (kept,) = (workdir / "evaluations").glob("*.json")
    assert json.loads(kept.read_text(encoding="utf-8")) == {**record, "checkpoint": "average:3"}
    hypotheses = kept.with_suffix(".txt").read_text(encoding="utf-8")
    assert (tmp_path / "out.de").read_text(encoding="utf-8") == hypotheses
    scores = bleu.all_scores(hypotheses.split("\n")[:-1], [german for _, german in tiny.PAIRS], "de")
    assert {name: record[name] for name in bleu.METRICS} == {name: scores[name] for name in bleu.METRICS}


@pytest.mark.slow
def test_files_are_scored_as_the_split_of_the_same_lines_is(workdir: Path, run: Run):
    files = [str(workdir.parent / f"tiny.{language}") for language in ("en", "de")]
    from_files, hypotheses = translations.evaluate(run, open_files(*files), GREEDY)
    from_split, _ = translations.evaluate(run, open_split(run, "test"), GREEDY)
    same = KEYS - {"seconds", "tokens_per_second"}
    assert {key: from_files[key] for key in same} == {key: from_split[key] for key in same}
    assert len(hypotheses) == from_files["sentences"] == 4 and from_files["language"] == "de"


def test_the_table_shows_three_scores_and_what_was_asked_for_with_signatures(workdir: Path, run: Run):
    record, _ = translations.evaluate(run, open_split(run, "test"), GREEDY, has_oracle_length=True)
    of_bleu = {False: "sacrebleu", True: "sacrebleu_lc"}
    for lowercase, name in of_bleu.items():
        lines = translations.table(record, lowercase=lowercase).splitlines()[2:]
        for line, expected in zip(lines, (name, "chrf", "oracle_match", "perplexity"), strict=False):
            shown, _, signature = line.split(maxsplit=2)
            assert (shown, signature) == (expected, record["signatures"][expected])
        assert lines[4:6] == ["all 12 scores: --json, or the record that the run keeps", ""]


@pytest.mark.slow
def test_perplexity_equals_its_definition_sentence_by_sentence(run: Run):
    pairs = [*tiny.PAIRS, ("The dog sleeps. " * 3, "Katze"), ("", "")]
    model, total, count = Transformer(run.model_config), 0.0, 0
    apply = jax.jit(lambda params, *ids: model.apply({"params": params}, *map(Tokens.of, ids)))
    for source, reference in pairs:
        source_1s, target_1t = np.zeros((1, 64), np.int32), np.zeros((1, 64), np.int32)
        target = [*run.tokenizer.encode(reference), EOS]
        for row_1t, ids in ((source_1s, [*run.tokenizer.encode(source), EOS]), (target_1t, [BOS, *target[:-1]])):
            row_1t[0, : len(ids)] = ids
        log_probs_tv = jax.nn.log_softmax(apply(run.params, source_1s, target_1t)[0])
        total += sum(float(log_probs_tv[t, token]) for t, token in enumerate(target))
        count += len(target)
    sources, references = [x for x, _ in pairs], [y for _, y in pairs]
    for tokens in (40, 512):
        result = perplexity(run.model_config, run.params, run.tokenizer, sources, references, tokens=tokens)
        assert result == pytest.approx(math.exp(-total / count), rel=1e-5)


@pytest.mark.slow
def test_an_ensemble_is_scored_by_the_mean_of_log_probabilities_and_kept_apart(workdir: Path, tmp_path: Path):
    folders = []
    for step in (1, 4):
        folders.append(tiny.write_run(tmp_path / f"step={step},seed=0"))  # as a sweep names its points
        config = json.loads((folders[-1] / "config.json").read_text())
        config["decode"]["checkpoint"] = str(step)
        (folders[-1] / "config.json").write_text(json.dumps(config))
    run_here(workdir=",".join(map(str, folders)), split="test", json=True)
    runs = [open_run(folder) for folder in folders]
    with pytest.raises(UserError, match="no evaluation of the test split; run python -m infer"):
        newest_evaluation(read_run(folders[0]), "test")
    for folder in folders:
        run_here(workdir=str(folder), split="test", json=True)
    first, second = map(read_run, folders)
    record = newest_evaluation(first, "test", [second]).scores
    assert record["members"] == [params_sha256(run.params) for run in runs]
    assert len(set(record["members"])) == 2
    assert record["params"] == 2 * sum(leaf.size for leaf in jax.tree.leaves(runs[0].params))
    with pytest.raises(UserError, match="no evaluation of the test split by the ensemble of these runs"):
        newest_evaluation(second, "test", [first])
    with pytest.raises(UserError, match="a run is named twice; an ensemble needs different ones"):
        run_here(workdir=f"{folders[0]},{folders[0]}/", split="test")
    with pytest.raises(UserError, match=r"tiny\.en: it is monolingual; only pairs can be translated, as in tsv:FILE$"):
        run_here(workdir=",".join(map(str, folders)), corpus=f"lines:{tmp_path}/tiny.en")

    model, tokenizer, total, count = Transformer(runs[0].model_config), runs[0].tokenizer, 0.0, 0
    apply = jax.jit(lambda params, *sides: model.apply({"params": params}, *sides))
    for source, reference in tiny.PAIRS:
        source_1s = np.array([[*tokenizer.encode(source), EOS]], np.int32)
        target = [*tokenizer.encode(reference), EOS]
        read = Tokens.of(source_1s), Tokens.of(np.array([[BOS, *target[:-1]]], np.int32))
        of_each = [jax.nn.log_softmax(apply(run.params, *read)[0]) for run in runs]
        log_probs_tv = jax.nn.log_softmax((of_each[0] + of_each[1]) / 2)
        total += sum(float(log_probs_tv[t, token]) for t, token in enumerate(target))
        count += len(target)
    assert record["perplexity"] == pytest.approx(math.exp(-total / count), rel=1e-5)


def test_a_sentence_as_long_as_the_learned_positions_is_scored(run: Run):
    sides = [["The dog sleeps. " * 3], ["Katze"]]
    longest = len(run.tokenizer.encode(sides[0][0])) + 1
    assert longest % 16  # no row length of its own
    without = dataclasses.replace(run.model_config, positions="none")
    learned = dataclasses.replace(run.model_config, positions="learned", max_positions=longest)
    zeros_ld = np.zeros((longest, learned.d_model), np.float32)
    tables = dict.fromkeys(("source_positions", "target_positions"), zeros_ld)
    found = perplexity(learned, run.params | tables, run.tokenizer, *sides)
    assert found == pytest.approx(perplexity(without, run.params, run.tokenizer, *sides), rel=1e-6)


@pytest.mark.parametrize("side", [0, 1])
def test_a_line_that_has_no_perplexity_is_named_before_all_are_translated(
    side: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = [["The dog.", "The cat."], ["Der Hund.", "Die Katze."]]
    sides[side][1] *= 20
    tokenizer = run.tokenizer if side == 0 else run.tokenizer.target
    longest = len(tokenizer.encode(sides[side][1])) + 1
    monkeypatch.setattr(translations, "perplexity", lambda *arguments: 1.0)
    monkeypatch.setattr(translations, "translate", mock.Mock(side_effect=AssertionError("translated")))
    for positions in (longest - 1, longest):
        learned = dataclasses.replace(run.model_config, positions="learned", max_positions=positions)
        few = run._replace(model_config=learned)
        wanted: tuple[type[Exception], str] = (AssertionError, "^translated$")
        if positions < longest:
            wanted = (UserError, rf"^line 2 has {longest} subwords, EOS counted, and the model {positions} learned")
        with pytest.raises(wanted[0], match=wanted[1]):
            translations.evaluate(few, Sentences("test", "x", "de", *sides), GREEDY)


@pytest.mark.parametrize("failing", ["perplexity", "oracle_length.exact_match"])
def test_scores_that_need_memory_come_before_the_search(
    failing: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translations, "translate", mock.Mock(side_effect=AssertionError("translated")))
    monkeypatch.setattr(
        f"vaswani.infer.evaluate.translations.{failing}", mock.Mock(side_effect=MemoryError("too little"))
    )
    with pytest.raises(MemoryError, match="too little"):
        translations.evaluate(run, Sentences("test", "x", "de", ["A"], ["B"]), GREEDY, has_oracle_length=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of --split=test, --corpus=SPEC, or both"),
        (("--source=x",), "give one of --split=test, --corpus=SPEC, or both"),
        (("--split=test", "--source=x"), "give one of --split=test, --corpus=SPEC, or both"),
        (("--split=test", "--corpus=grammar:deeper"), "give one of --split=test, --corpus=SPEC, or both"),
        (("--corpus=",), "corpus '': unknown scheme"),
        (("--corpus=grammar:deepest",), "SPLIT one of train, valid, test, deeper, longer"),
        (("--corpus=lines:{d}/tiny.en",), "it is monolingual; this run needs pairs, as in tsv:FILE"),
        (("--corpus=lines:{d}/tiny.en", "--output=out"), r"^lines:.*tiny\.en is a text, which is not translated: give"),
        (("--corpus=lines:{d}/tiny.en", "--beam=2"), "tiny.en is a text, which is not translated: give"),
        (("--source={d}/tiny.en", "--reference={d}/none.de"), "none.de"),
        (("--split=train",), "the run's config has no data.train"),
    ],
)
def test_wrong_calls_are_one_line_on_stderr(workdir: Path, arguments: tuple[str, ...], message: str):
    given = dict(argument.removeprefix("--").format(d=workdir.parent).split("=") for argument in arguments)
    with pytest.raises(UserError, match=message) as error:
        run_here(workdir=str(workdir), **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("row_length", [0, 8])
def test_a_row_length_is_for_language_models(workdir: Path, row_length: int) -> None:
    with pytest.raises(UserError, match="--row_length is for language models; this run's task is translation"):
        run_here(workdir=str(workdir), split="test", row_length=row_length)


@pytest.mark.parametrize("task", ["translation", "prefix_lm", "recurrent_translation"])
@pytest.mark.parametrize("is_split", [True, False])
def test_a_text_is_no_pairs_for_any_translator(task: str, is_split: bool, workdir: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(workdir, tmp_path / "run")
    text = f"lines:{workdir.parent}/tiny.en"
    config = json.loads((copy / "config.json").read_text())
    config["task"] = task
    config["data"]["test"] = text
    (copy / "config.json").write_text(json.dumps(config))
    given = {"split": "test"} if is_split else {"corpus": text}
    with pytest.raises(UserError, match="it is monolingual; ") as error:
        run_here(workdir=str(copy), **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"source": "x", "reference": "y"},
        {"output": "out"},
        {"beam": 4},
        {"alpha": 0.0},
        {"stopping": "full"},
        {"batch_tokens": 9},
    ],
)
def test_what_only_translation_has_is_refused_elsewhere(given: dict, tmp_path: Path):
    config = tiny.run_config(tmp_path).to_dict() | {"task": "masked_lm"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    given = given if "source" in given else given | {"split": "test"}
    with pytest.raises(UserError, match=r"^this run's task is masked_lm: give --split or --corpus, and no file, "):
        run_here(workdir=str(tmp_path), **given)


@pytest.mark.parametrize(("given", "searched"), [(None, None), (96, 96)])
def test_as_many_positions_are_searched_at_a_time_as_the_flag_says(
    given: int | None, searched: int | None, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("vaswani.infer.evaluate.sentences.Translator", translator)
    with pytest.raises(KeyboardInterrupt):
        run_here(workdir=str(workdir), checkpoint="latest", split="test", batch_tokens=given)
    assert translator.call_args.kwargs == {"batch_tokens": searched}


def test_scores_are_printed_even_where_the_run_cannot_be_written(
    workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    copy = shutil.copytree(workdir, tmp_path / "run", ignore=shutil.ignore_patterns("evaluations"))
    (copy / "evaluations").write_text("in the way")
    run_here(workdir=str(copy), split="test", json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["step"] == 4
    assert "evaluations cannot be written" in printed.err


def test_what_was_found_is_saved_even_if_nobody_reads_it(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(workdir, tmp_path / "run", ignore=shutil.ignore_patterns("evaluations"))
    monkeypatch.setattr("vaswani.infer.evaluate.record.print", mock.Mock(side_effect=BrokenPipeError), raising=False)
    with pytest.raises(BrokenPipeError):
        run_here(workdir=str(copy), checkpoint="latest", split="test", output=str(tmp_path / "out.de"))
    (kept,) = (copy / "evaluations").glob("*.json")
    assert kept.name == "test-step4-latest-beam1-alpha0.6-extra_length3.json"
    assert (tmp_path / "out.de").read_text() == kept.with_suffix(".txt").read_text() != ""


def test_evaluations_that_differ_have_names_that_differ(workdir: Path, run: Run, tmp_path: Path) -> None:
    record, lines = translations.evaluate(run, open_split(run, "test"), GREEDY)
    into = run._replace(workdir=tmp_path)
    changes = ({}, {"extra_length": 4}, {"oracle_match": 1.0}, {"split": "tiny.en", "data": "a/tiny.en"},
               {"split": "tiny.en", "data": "b/tiny.en"})  # fmt: skip
    changes += (
        {"length_penalty": "power"},
        {"stopping": "full"},
        {"split": "text:/" + "ä" * 300, "data": "text:/" + "ä" * 300},
    )
    changes += ({"data": "another"}, {"split": "caf\udce9.en", "data": "caf\udce9.en caf\udce9.de"})
    names = [save(into, {**record, **change}, lines, "latest").name for change in changes]
    assert len(set(names)) == len(changes)
    assert names[2] == "test-step4-latest-beam1-alpha0.6-extra_length3-oracle_length.json"


def test_a_split_that_names_another_corpus_now_replaces_nothing(run: Run, tmp_path: Path) -> None:
    record, lines = translations.evaluate(run, open_split(run, "test"), GREEDY)
    first = save(run._replace(workdir=tmp_path), record, lines, "latest")
    config = run.config.copy_and_resolve_references()
    with config.unlocked():
        config.data.test = "another"
    changed = run._replace(workdir=tmp_path, config=config)
    second = save(changed, {**record, "data": "another"}, lines, "latest")
    assert second != first and json.loads(first.read_text())["data"] == record["data"]
    assert save(changed, {**record, "data": "another"}, lines, "latest") == second


def test_a_file_is_not_called_as_a_split(tmp_path: Path) -> None:
    (tmp_path / "test").write_text("a\n")
    (tmp_path / "in.en").write_text("a\n")
    names = [open_files(str(tmp_path / name), str(tmp_path / "in.en")).name for name in ("test", "in.en")]
    assert names == ["file-test", "in.en"]


def test_what_another_command_has_added_stays_while_the_parameters_do(run: Run, tmp_path: Path) -> None:
    record, lines = translations.evaluate(run, open_split(run, "test"), GREEDY)
    into = run._replace(workdir=tmp_path)
    path = save(into, record, lines, "latest")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"contrasts": [1], "stray": 2}))
    save(into, record, lines, "latest")
    kept = json.loads(path.read_text())
    assert kept["contrasts"] == [1] and "stray" not in kept
    save(into, {**record, "params_sha256": "other"}, lines, "latest")
    assert "contrasts" not in json.loads(path.read_text())
    path.write_text("damaged")
    save(into, record, lines, "latest")
    assert json.loads(path.read_text())["data"] == record["data"]


@pytest.mark.parametrize("task", ["prefix_lm", "recurrent_translation"])
def test_given_translations_are_scored_by_any_translator(task: str, workdir: Path, tmp_path: Path) -> None:
    """The copy's parameters are those of another model, which is said only once its task has been accepted."""
    copy = shutil.copytree(workdir, tmp_path / "run")
    config = json.loads((copy / "config.json").read_text()) | {"task": task}
    config["model"] |= {"prefix": "full"} if task == "prefix_lm" else {"recurrent": "dot", "positions": "none"}
    (copy / "config.json").write_text(json.dumps(config))
    (tmp_path / "in").write_text("a\n")
    lines = str(tmp_path / "in")
    options = SimpleNamespace(workdir=str(copy), checkpoint=None, nbest=None, source=lines, target=lines)
    with pytest.raises(UserError) as error:
        rescore.main(options)
    assert "this run's task is" not in str(error.value)


def test_an_entry_of_a_list_is_scored_with_the_source_that_it_names(
    run: Run, workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, targets = ["The dog sleeps.", "A cat."], ["Eine Katze.", "Der Hund schläft."]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in sources))
    (tmp_path / "lists").write_text(f"1 ||| {targets[0]}\n0 ||| {targets[1]}\n")
    files = {"nbest": str(tmp_path / "lists"), "source": str(tmp_path / "in"), "target": None}
    rescore.main(SimpleNamespace(workdir=str(workdir), checkpoint="latest", **files))
    printed = [float(line.rpartition(" ||| ")[2]) for line in capsys.readouterr().out.splitlines()]
    model = (run.model_config, run.params, run.tokenizer)
    assert printed == pytest.approx(line_log_probs(*model, sources[::-1], targets), abs=1e-5)
    assert printed != pytest.approx(line_log_probs(*model, sources, targets), abs=1e-3)


def test_a_record_has_the_bands_and_the_speed_of_its_translations(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = Sentences("test", "x", "de", ["The dog sleeps.", "A cat."], ["Der Hund schläft heute.", "Eine Katze."])
    found = [Hypothesis("Der Hund schläft.", -1.0, -1.0, (5, 6, 7)), Hypothesis("Katze.", -1.0, -1.0, (8,))]
    translated = [Translation((hypothesis,)) for hypothesis in found]
    monkeypatch.setattr(translations, "translate", lambda *arguments: (translated, 2.0))
    record, hypotheses = translations.evaluate(run, sentences, GREEDY)
    assert record["by_length"] == by_length(sentences.sources, hypotheses, sentences.references, "de")
    assert record["by_length"] != by_length(sentences.sources, sentences.references, hypotheses, "de")
    assert record["tokens_per_second"] == (4 + 2) / 2  # with the ends


def test_symbols_of_the_references_that_the_vocabulary_lacks_are_counted(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.tokenizer, "unknown", len)
    translations.evaluate(run, Sentences("test", "x", "de", ["The dog."], ["Der Hund."]), GREEDY)
    printed = capsys.readouterr().err
    assert "note: not in the vocabulary, and so read as unknown: 1 symbol of the text\n" in printed
    assert "note: not in the vocabulary, and so read as unknown: 1 symbol of the references\n" in printed


@pytest.mark.parametrize(
    ("more", "shown"),
    [({}, ""), ({"length_penalty": "power", "stopping": "full"}, ", length penalty power, stopping full")],
)
def test_the_first_line_names_a_search_that_is_not_the_papers(more: dict[str, str], shown: str) -> None:
    sentences = Sentences("test", "tsv:x.tsv", "de", ["a"], ["b"])
    search = about(sentences, dataclasses.replace(GREEDY, **more))
    record = {"data": sentences.data, "checkpoints": [7], **search}
    assert headline(record) == f"tsv:x.tsv: 1 sentence, beam 1, alpha 0.6{shown}, step 7"


@pytest.mark.parametrize(("name", "language"), [("ref.txt", "zh"), ("ref.fr", "fr")])
def test_references_whose_file_names_no_language_are_in_that_of_the_run(
    name: str, language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny.random_run()
    run.config.data.train = "text:x.{en,zh}"
    monkeypatch.setattr("vaswani.infer.__main__.open_runs", lambda *arguments: [run])
    asked: list[Sentences] = []

    def evaluate(model_run: object, sentences: Sentences, *arguments: object, **options: object) -> tuple:
        asked.append(sentences)
        raise KeyboardInterrupt

    monkeypatch.setattr(translations, "evaluate", evaluate)
    (tmp_path / "in.en").write_text("The dog sleeps.\n")
    (tmp_path / name).write_text("狗在睡觉。\n", encoding="utf-8")
    flags = dict.fromkeys(("corpus", "split", "checkpoint", "beam", "alpha", "extra_length", "stopping"))
    files = {"source": str(tmp_path / "in.en"), "reference": str(tmp_path / name)}
    options = SimpleNamespace(workdir="x", oracle_length=False, batch_tokens=None, **flags, **files)
    with pytest.raises(KeyboardInterrupt):
        command.evaluate_translations(options)
    assert asked[0].language == language


def test_an_output_that_is_one_of_the_inputs_is_refused(tmp_path: Path) -> None:
    reference = tmp_path / "ref.de"
    reference.write_text("Der Hund schläft.\n")
    (tmp_path / "link.de").symlink_to(reference)
    for output in (reference, tmp_path / "link.de"):
        with pytest.raises(UserError, match=r"this is the file of --reference, which would be lost; name another$"):
            check_output(str(output), source=None, reference=str(reference))
    check_output(str(tmp_path / "new.de"), source=None, reference=str(reference))
    check_output("/dev/null", source="/dev/null")
    check_output(None, reference=str(reference))


def test_parameters_that_are_not_finite_score_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_finite = run._replace(params=jax.tree.map(lambda leaf: leaf * np.nan, run.params))
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("The dog sleeps.\n")
    source, target = str(tmp_path / "a.en"), str(tmp_path / "a.de")
    given = {"workdir": "run", "checkpoint": None, "source": source}
    monkeypatch.setattr("vaswani.infer.rescore.open_run", lambda *_: not_finite)
    with pytest.raises(UserError, match=r"the parameters of this run are not finite$"):
        rescore.main(SimpleNamespace(**given, target=target, nbest=None))
    monkeypatch.setattr("vaswani.infer.__main__.open_runs", lambda *_: [run, not_finite])
    with pytest.raises(UserError, match=r"the parameters of this run are not finite$"):
        command.evaluate_translations(SimpleNamespace(**given, reference=target, corpus=None, split=None))
