"""Parses sentences, repairs what is not a tree, and scores the trees as EVALB does (section 6.3, Table 4).

Every sentence counts, since the gold tree decides which words are punctuation; EVALB's own figures are kept too.
"""

from pathlib import Path
from typing import Any

from base.errors import UserError
from data.trees.linearise import restore
from data.trees.tree import Tree
from infer.evaluate.record import deliver, provenance
from infer.evaluate.sentences import Sentences, about, headline, open_sentences, open_split, translate
from infer.options import decoding as decoding_of
from infer.runs import Run, open_run
from infer.scores.brackets import COLLINS, Parameters, read_parameters, report, score_sentence, summaries
from infer.translate.options import Decoding
from run.connect import connect

BATCH_TOKENS = 512  # source positions per batch: a beam of 21 with 300 extra symbols needs much memory
SCORES = ("f1", "recall", "precision", "complete_match", "tagging_accuracy")
COUNTED = "sentences:all|deleted:by gold tags"
REPAIR = "line!=linearise(restore(line))"


def open_trees(file: str) -> Sentences:
    """Returns the sentences and trees of a bracket file."""
    return open_sentences(Path(file).name, f"trees:{file}")


def open_parsed_split(model_run: Run, split: str) -> Sentences:
    """Returns the treebank that the run's config names for `split`."""
    sentences = open_split(model_run, split)
    if sentences.language != "trees":
        raise UserError(f"data.{split} is {sentences.data!r}: not a treebank; it would be trees:FILE, or give --trees")
    return sentences


def evaluate(
    model_run: Run, sentences: Sentences, parameters: Parameters, decoding: Decoding
) -> tuple[dict[str, Any], list[Tree]]:
    """Returns the result record, of JSON values, and the trees.

    Scores and `repaired_share` are percentages. `figures` has all figures of `infer.brackets` over every sentence;
    `evalb` has them as EVALB would print them, without the sentences it counts as `errors`.
    """
    lines, seconds = translate(model_run, sentences, decoding, "parsing", "sentences", BATCH_TOKENS)
    words = [source.split() for source in sentences.sources]
    restored = [restore(line.text, of_line) for line, of_line in zip(lines, words, strict=True)]
    trees = [tree for tree, _ in restored]
    gold = [restore(reference, of_line)[0] for reference, of_line in zip(sentences.references, words, strict=True)]
    figures, evalb = (
        summaries(
            [
                score_sentence(one.bracketed(), other.bracketed(), parameters, same_words=same_words)
                for one, other in zip(gold, trees, strict=True)
            ],
            parameters,
        )
        for same_words in (True, False)
    )
    record = {
        **{name: figures["All"][name] for name in SCORES},
        "repaired_share": 100 * sum(repaired for _, repaired in restored) / len(restored),
        "errors": evalb["All"]["errors"],
        "figures": figures,
        "evalb": evalb,
        "signatures": {**dict.fromkeys(SCORES, f"{parameters.signature()}|{COUNTED}"), "repaired_share": REPAIR},
        "seconds": seconds,
        "sentences_per_second": len(trees) / seconds,
        **provenance(model_run, sentences.data, sentences.name),
        **about(sentences, decoding),
    }
    return record, trees


def table(record: dict[str, Any]) -> str:
    """Returns the record as text: the data and the search, EVALB's summary over every sentence, and EVALB's own F."""
    repaired = f"repaired: {record['repaired_share']:.2f} % of the lines were not a tree over their sentence"
    evalb = f"EVALB itself: F {record['evalb']['All']['f1']:.2f}, dropping {record['errors']} sentences as errors"
    speed = f"{record['seconds']:.1f} seconds, {record['sentences_per_second']:,.1f} sentences per second"
    head = (headline(record), record["signatures"]["f1"])
    return "\n".join((*head, "", report(record["figures"]), "", evalb, repaired, speed))


def main(options: Any) -> None:
    """Connects to the other processes, then parses and scores as `infer.parse` says."""
    connect()
    parse(options)


def parse(options: Any) -> None:
    """Parses the sentences that the flags name, scores the trees, and saves the record."""
    parameters = read_parameters(options.parameters) if options.parameters is not None else COLLINS
    given = open_trees(options.trees) if options.trees else None  # before the model, so that a bad file fails at once
    model_run = open_run(options.workdir, options.checkpoint)
    sentences = given or open_parsed_split(model_run, options.split)
    record, trees = evaluate(model_run, sentences, parameters, decoding_of(options, model_run.config))
    deliver(options, model_run, record, [tree.bracketed() for tree in trees], table, kind="parse")
