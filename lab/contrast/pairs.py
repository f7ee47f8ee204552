"""Which pairs are measured: the first of each kind and distance in a split of the grammar."""

from functools import lru_cache

from lab.contrast.sentences import RELATIONS, contrasts
from lab.grammar.sentences import lexicon_of, pair
from vaswani.progress import Progress

Band = tuple[int, int | None]
Pairs = dict[tuple[str, Band], list[tuple[str, str, str]]]  # by relation and band: (English, right, wrong German)
BANDS: tuple[Band, ...] = ((1, 2), (3, 4), (5, 7), (8, None))  # words: the first and the last distance of each


@lru_cache(maxsize=1)
def minimal_pairs(split: str, sentences: int, cases: int) -> Pairs:
    """Returns the first `cases` pairs of each relation and band that the first sentences of a split hold."""
    lexicon = lexicon_of(split)
    pairs: Pairs = {(relation, band): [] for relation in RELATIONS for band in BANDS}
    with Progress(f"reading grammar:{split}", "sentences", total=sentences) as progress:
        for index in progress.count(range(sentences)):
            example = pair(split, index)
            for contrast in contrasts(example, lexicon):
                cell = pairs[contrast.relation, band_of(contrast.distance)]
                if len(cell) < cases:
                    cell.append((example.english, example.german, contrast.wrong))
    return {name: cell for name, cell in pairs.items() if cell}


def shown(band: Band) -> str:
    """Returns a band in words."""
    first, last = band
    return f"{first} to {last}" if last else f"{first} and more"


def band_of(distance: int) -> Band:
    """Returns the band that holds a distance of at least 1."""
    return next(band for band in BANDS if band[1] is None or distance <= band[1])
