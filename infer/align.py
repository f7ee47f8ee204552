"""Aligns the words of sentence pairs by the attention of the decoder over the encoder, in Pharaoh format.

python -m infer.align --workdir=runs/quickstart --source=in.txt --target=out.txt [--layer=5] > alignment.txt

Line i has SOURCE-TARGET for each target word of pair i, with words counted from 0: SOURCE is the word to which TARGET
attends most, averaged over the heads of one layer. A word's weight is the sum over its subwords; the end of the
sentence is not a word.

By default it is the last layer, which had the fewest wrong links in models of 2 and of 4 layers on sentences of the
built-in grammar, whose alignments are known. In larger models, with six layers, Garg et al. 2019 found the last but one
best.
"""

from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.infer.attention.alignment import align
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import open_run
from vaswani.infer.scores.forced import check_lengths
from vaswani.infer.scores.pairs import read_pair


def main(options: Any) -> None:
    """Prints the links of each pair of two files."""
    sources, targets = read_pair(options.source, options.target)
    model_run = open_run(options.workdir, options.checkpoint)
    _, layers = model_run.model_config.depths
    layer = layers if options.layer is None else options.layer
    if not 1 <= layer <= layers:
        raise UserError(f"--layer={layer}: the model's layers are 1 to {layers}")
    check_lengths([model_run.model_config], model_run.tokenizer, sources, targets)  # first: the longest come last
    pairs = list(zip(sources, targets, strict=True))
    for links in align(model_run, pairs, layer - 1):
        print(" ".join(f"{source}-{target}" for source, target in links))


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("source", None, "the source sentences, one per line; plain text or .gz")
    flags.DEFINE_string("target", None, "their translations, line by line")
    flags.DEFINE_integer("layer", None, "layer of the decoder, from 1; default: the last")
    flags.mark_flags_as_required(["source", "target"])
    start(main, hint="files are given as --source=FILE --target=FILE")
