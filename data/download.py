"""Downloads a public corpus to where its config reads it, and says its licence and size.

    python -m data.download CORPUS [CORPUS ...]

CORPUS is one of

    shakespeare          for configs/char_lm.py
    multi30k             for configs/multi30k.py and lab/studies/multi30k_raw/design.py
    multi30k_published   for configs/multi30k_published.py
    sigmorphon2021       for lab/studies/g2p/design.py

The same command resumes a download that was interrupted. Each file's SHA-256 is compared with the one in
data/corpora.py, and a file that differs is not kept. The files go into ~/.cache/vaswani/corpora, or
$XDG_CACHE_HOME/vaswani/corpora; the environment variable VASWANI_CORPORA names another folder, for this command and for
the configs. No corpus is part of this repository; they come under different licences.

WMT14 is downloaded by data.prepare. No command downloads Tatoeba or the news corpus: nobody offers exactly the files
that our results were trained on. docs/corpora.md says where other corpora are and how to split them.
"""

import sys

from vaswani import command
from vaswani.data.corpora import CORPORA, ELSEWHERE, corpus_folder
from vaswani.data.fetch import fetch
from vaswani.errors import UserError
from vaswani.files import local_path


def main(argv: list[str]) -> None:
    """Downloads the corpora that are named; prints their folders."""
    names = argv[1:]
    if not names:
        raise UserError(f"name a corpus: {', '.join(CORPORA)}; --help says which config reads which")
    for name in names:
        _check_name(name)
    for name in names:
        source = CORPORA[name]
        size = sum(file.size for file in source.files)
        print(f"{name}: {source.about}; {size / 1e6:.1f} MB; licence: {source.licence}", file=sys.stderr)
        place = local_path(corpus_folder(name), f"{name}: {corpus_folder(name)}")
        for file in source.files:
            fetch(file, place)
        print(place)


def _check_name(name: str) -> None:
    if name in ELSEWHERE:
        raise UserError(f"{name}: this command cannot download it: {ELSEWHERE[name]}; the config says what it reads")
    if name not in CORPORA:
        raise UserError(f"there is no corpus {name!r}; there are {', '.join(CORPORA)}")


if __name__ == "__main__":
    command.run(main)
