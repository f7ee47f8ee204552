"""Aligns the words of sentence pairs by the attention of the decoder over the encoder, in Pharaoh format.

python -m infer.align --workdir=runs/quickstart --source=in.txt --target=out.txt [--layer=1] > alignment.txt

Line i has SOURCE-TARGET for each target word of pair i, with words counted from 0: SOURCE is the word to which TARGET
attends most, averaged over the heads of one layer; by default the last but one, as in Garg et al. 2019. A word's weight
is the sum over its subwords; the end of the sentence is not a word.
"""

from absl import flags

from base.command import imported
from infer.options import define_run_flags, start

if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("source", None, "the source sentences, one per line; plain text or .gz")
    flags.DEFINE_string("target", None, "their translations, line by line")
    flags.DEFINE_integer("layer", None, "layer of the decoder, from 1; default: the last but one")
    flags.mark_flags_as_required(["source", "target"])
    start(imported("infer.attention.alignment"), hint="files are given as --source=FILE --target=FILE")
