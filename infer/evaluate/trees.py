"""Parses sentences, repairs what is not a tree, and scores the trees as EVALB does (section 6.3, Table 4).

Every sentence counts, since the gold tree decides which words are punctuation; EVALB's own figures are kept too.
"""

from typing import Any

from vaswani.data.trees.linearise import restore
from vaswani.data.trees.tree import Tree
from vaswani.errors import UserError
from vaswani.infer.evaluate.record import provenance
from vaswani.infer.evaluate.sentences import Sentences, about, headline, name_of, open_sentences, open_split, translate
from vaswani.infer.runs import Run
from vaswani.infer.scores import brackets
from vaswani.infer.scores.brackets import Parameters, score_sentence, summaries
from vaswani.search.options import Decoding

BATCH_TOKENS = 512  # source positions per batch: a beam of 21 with 300 extra symbols needs much memory
SCORES = ("f1", "recall", "precision", "complete_match", "tagging_accuracy")
# In the signatures: how F1 is counted here, and which lines count as repaired.
COUNTED = "sentences:all|deleted:by gold tags"
REPAIR = "line!=linearise(restore(line))"


def open_trees(file: str) -> Sentences:
    """Returns the sentences and trees of a bracket file."""
    return open_sentences(name_of(file), f"trees:{file}")


def open_parsed_split(model_run: Run, split: str) -> Sentences:
    """Returns the treebank that the run's config names for `split`."""
    sentences = open_split(model_run, split, "--trees=FILE")
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
    lines, seconds = translate([model_run], sentences, decoding, "parsing", "sentences", BATCH_TOKENS)

    # A line that the model wrote may lack a bracket or a word: `restore` makes a tree over the sentence of any.
    words = [source.split() for source in sentences.sources]
    trees = []
    repaired = 0
    for line, line_words in zip(lines, words, strict=True):
        tree, was_repaired = restore(line.text, line_words)
        trees.append(tree)
        repaired += was_repaired
    # References are lines as well, of right trees, which only need their words.
    references = zip(sentences.references, words, strict=True)
    gold = [restore(reference, line_words)[0] for reference, line_words in references]

    # Over every sentence; and as EVALB has it, which drops those where its two sides have different words.
    figures = _summaries(gold, trees, parameters, same_words=True)
    evalb = _summaries(gold, trees, parameters, same_words=False)
    signatures = dict.fromkeys(SCORES, f"{parameters.signature()}|{COUNTED}")
    signatures["repaired_share"] = REPAIR

    record = {
        **{name: figures["All"][name] for name in SCORES},
        "repaired_share": 100 * repaired / len(trees),
        "errors": evalb["All"]["errors"],
        "figures": figures,
        "evalb": evalb,
        "signatures": signatures,
        "seconds": seconds,
        "sentences_per_second": len(trees) / seconds,
        **provenance(model_run, sentences.data, sentences.name),
        **about(sentences, decoding),
    }
    return record, trees


def _summaries(
    gold: list[Tree], trees: list[Tree], parameters: Parameters, *, same_words: bool
) -> dict[str, dict[str, int | float]]:
    """Returns EVALB's summaries; see `infer.scores.brackets.score_sentence` for `same_words`."""
    scores = []
    for gold_tree, tree in zip(gold, trees, strict=True):
        score = score_sentence(gold_tree.bracketed(), tree.bracketed(), parameters, same_words=same_words)
        scores.append(score)
    return summaries(scores, parameters)


def table(record: dict[str, Any]) -> str:
    """Returns the record as text: the data and the search, EVALB's summary over every sentence, and EVALB's own F."""
    repaired = f"repaired: {record['repaired_share']:.2f} % of the lines were not a tree over their sentence"
    evalb = f"EVALB itself: F {record['evalb']['All']['f1']:.2f}, dropping {record['errors']} sentences as errors"
    speed = f"{record['seconds']:.1f} seconds, {record['sentences_per_second']:,.1f} sentences per second"
    lines = [
        headline(record),
        record["signatures"]["f1"],
        "",
        brackets.report(record["figures"]),
        "",
        evalb,
        repaired,
        speed,
    ]
    return "\n".join(lines)
