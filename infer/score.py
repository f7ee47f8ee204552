"""Scores a file of translations against a file of references, one sentence per line, plain or .gz.

python -m infer.score --hypothesis=out.de --reference=newstest2014.de.gz [--baseline=FILE] [--json]
python -m infer.score --hypothesis=out.de --reference=A.de --reference=B.de    # several references of each line

Prints every variant of BLEU, chrF and exact match, each with its signature; see infer/scores/bleu.py. With --baseline,
another system's translations of the same lines, it also prints whether the difference is significant: the two-sided p
of paired approximate randomisation (10,000 exchanges of translations, `ar` in the signature), next to each score's 95 %
interval (bootstrap over sentences, `bs`). Neither says how much training seeds differ; for that, train several.
"""

import json
import re
from pathlib import Path

from absl import flags

from vaswani.command import run
from vaswani.data.lines import read_lines
from vaswani.infer.scores import bleu, significance
from vaswani.infer.scores.pairs import check_equal, language_of, read_pair


def main(argv: list[str]) -> None:
    """Prints the scores of a file of translations."""
    options = flags.FLAGS
    first, *more = options.reference
    hypotheses, references = read_pair(options.hypothesis, first)
    others = [read_pair(options.hypothesis, reference)[1] for reference in more]
    baseline = None
    if options.baseline is not None:
        baseline = list(read_lines(Path(options.baseline)))
        check_equal(options.baseline, baseline, first, references)
    language = options.language or language_of(first)
    scores = bleu.all_scores(hypotheses, references, language, others=others)
    if baseline is not None:
        scores["baseline"] = significance.compare_all(baseline, hypotheses, references, language, others=others)
    if options.json:
        print(json.dumps(scores, indent=2))
        return
    print(bleu.as_text(scores))
    if baseline is not None:
        print(f"\n{options.baseline}, {options.hypothesis}, difference and two-sided p:")
        print(significance.as_text(scores["baseline"]))


if __name__ == "__main__":
    flags.DEFINE_string("hypothesis", None, "translations, one per line; plain text, or gzip if the name ends in .gz")
    flags.DEFINE_multi_string("reference", None, "references, line by line; again for further ones of the same lines")
    flags.DEFINE_string(
        "baseline",
        None,
        "another system's translations, to test whether the difference is significant: two-sided p by paired "
        "approximate randomisation",
    )
    flags.DEFINE_string("language", None, "target language, for the tokenisers; default: from --reference, or de")
    flags.register_validator(
        "language",
        lambda code: code is None or re.fullmatch(r"[a-z]{2,3}([-_]\w+)?", code),
        "it is a language's code, such as de or zh-CN",
    )
    flags.DEFINE_bool("json", False, "print JSON instead of a table")
    flags.mark_flags_as_required(["hypothesis", "reference"])
    run(main, hint="files are given as --hypothesis=FILE --reference=FILE")
