"""Public corpora: their files, where to download them, and where the configs read them.

`CORPORA` lists the corpora that `python -m data.download` fetches. Each SHA-256 pins the bytes that our results were
trained on or, for pronunciations, will be. `ELSEWHERE` lists the ones that it cannot fetch, and why.
"""

import os
from pathlib import Path
from typing import NamedTuple

from vaswani.files import user_cache

FOLDER = "VASWANI_CORPORA"  # the environment variable that names the folder of all corpora


class File(NamedTuple):
    """A file to download: its name in the corpus's folder is the end of its address."""

    url: str
    size: int  # bytes
    sha256: str

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


class Source(NamedTuple):
    """A corpus that can be downloaded."""

    about: str
    licence: str
    files: tuple[File, ...]


def _files(folder: str, *rows: tuple[str, int, str]) -> tuple[File, ...]:
    """Returns the files of one folder of a site, from their names, sizes and checksums."""
    return tuple(File(f"{folder}/{name}", size, sha256) for name, size, sha256 in rows)


_GITHUB = "https://raw.githubusercontent.com"
_MULTI30K = f"{_GITHUB}/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw"
_PUBLISHED = f"{_GITHUB}/LividWo/Revisit-MMT/dc368d0af8d60270b8f4aaa2f3ac58771c551da3/data/multi30k-en-de"
_SIGMORPHON = f"{_GITHUB}/sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c/data/medium"
_SIGMORPHON_VIE = f"{_GITHUB}/sigmorphon/2021-task1/e5d4cbc90aca9e92006921a9ee5505688dd28f5a/data/medium"

CORPORA = {
    "shakespeare": Source(
        "a text of Shakespeare's plays, from karpathy/char-rnn",
        "public domain",
        _files(
            f"{_GITHUB}/karpathy/char-rnn/master/data/tinyshakespeare",
            ("input.txt", 1_115_394, "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"),
        ),
    ),
    "multi30k": Source(
        "English and German image captions, from multi30k/dataset",
        "non-commercial research and education",
        _files(
            _MULTI30K,
            ("train.en.gz", 568_929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
            ("train.de.gz", 637_044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
            ("val.en.gz", 21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
            ("val.de.gz", 24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
            ("test_2016_flickr.en.gz", 21_077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
            ("test_2016_flickr.de.gz", 22_890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
        ),
    ),
    "multi30k_published": Source(
        "the same captions, lower-cased, tokenised and in subwords, from LividWo/Revisit-MMT",
        "non-commercial research and education",
        _files(
            _PUBLISHED,
            ("train.en", 1_898_472, "0ffe3e3bac16e6aa33ef0dd6a7dca81587479b0d18dff0db2a92ac3f32b00c86"),
            ("train.de", 2_269_411, "b2c74def7ec129f7ea7023a51501c77174c377ef06c6ccc2f031adcfb5cfadbd"),
            ("valid.en", 67_101, "193d0d18fef5d1bc9d1cddafa13a644de3c5d6a24b45ac44476dcc5e96bfac6e"),
            ("valid.de", 82_295, "eeb95680d6a06eafb13e3494eed9f9fa99783b892f4a3c72dd36e7ce2e000b68"),
            ("test.2016.en", 65_416, "13b5fe3f92f78c54446d66afcaaa0a00a33ab653a8411f16812c9c5ca3795d6d"),
            ("test.2016.de", 75_949, "375c20d50f4c486149a78dfcfb161a430a04ddabe2b7d150f0c7811dc455ac60"),
        ),
    ),
    "sigmorphon2021": Source(
        "words of ten languages and their pronunciations, from sigmorphon/2021-task1",
        "CC BY-SA 3.0, from Wiktionary",
        _files(
            _SIGMORPHON,
            ("arm_e_train.tsv", 273_177, "2cfc0ded02151377cb6fa25cae112acb7f3c0d1d92d5479de19799687b0be8d2"),
            ("arm_e_dev.tsv", 34_999, "151b26dd407836cbaea4110018a2090e6d627cb98ca5febcfe29bb48bec3bff1"),
            ("arm_e_test.tsv", 34_311, "4b2301ef999b9f63d71b05825002a015ef4ce62b1dd56de924c78f237ebb5545"),
            ("bul_train.tsv", 332_375, "a0ad49ef705339bf7d7a301cf97cd33a5ab72743b4367914abe42c18ee835170"),
            ("bul_dev.tsv", 41_920, "f503124b83dff9ff2f248f39374bf7b8f93a915dafdee6c72f15f7bdf4317d01"),
            ("bul_test.tsv", 41_674, "b4a7d382bf94ca5f1b8e5d6c03f567b5837eb5272da67fab8aef1dcfe967450b"),
            ("dut_train.tsv", 211_071, "08d327412cbf809a4cf894e015975d91588a38e8e05fb86450f42a4a38e534b8"),
            ("dut_dev.tsv", 26_360, "77a896e9510b6ebc610a9bc6a1bf32a06bc85489e9056caf77d996bb107318aa"),
            ("dut_test.tsv", 25_992, "eb31a13e8f797f1bda23194689805c8ea0cd6960e86f739d1e818f1815c287ae"),
            ("fre_train.tsv", 182_424, "e9de4f5125d2478e50506c5ed278f69d5fb17d8d213f99f845305c24e28a55c2"),
            ("fre_dev.tsv", 22_895, "3b42f14f318367dd94faa6d59e8fafabd845a3998800b6ce71a7c67e999490da"),
            ("fre_test.tsv", 23_087, "6202c2b7b8d5fbd76a4d40373f9564a9946671dab617438b534bd47c64071c92"),
            ("geo_train.tsv", 357_273, "0369d37ddd994ad7366f3c0bfd314d80f2e80f1795c5b461e76344f188944635"),
            ("geo_dev.tsv", 44_776, "4a4127d579219a6a7a2079fef950c94543aa022ede1847b753c9e305c1f9e10f"),
            ("geo_test.tsv", 44_658, "5f4ac16ace1fdb046ed9dbd99068d0bcfeed278f8c80cb91697ca7ef88c8f2d5"),
            ("hbs_latn_train.tsv", 216_303, "b4bf802445c2de3db73e20c2d6c51868e6c66ddb7abc64f5398469cf5c54e9c5"),
            ("hbs_latn_dev.tsv", 27_164, "38b3ab21d522b0553e97d62784287cf62e29460360bec8f20b32bbb47b2a7cbc"),
            ("hbs_latn_test.tsv", 27_109, "8d0bdc358b35ccaf1cc2068b5304d92a90768c7ac608c2bba8d632e90bfaffd8"),
            ("hun_train.tsv", 226_536, "cd6bea5ae552bc73a63abf459af5f41d27c1c276b4a15de49f1fffd23ee4d363"),
            ("hun_dev.tsv", 28_113, "a2892c27cf6d3075aacdd195c02bf34f8b509bcc08bb230b758d7978a7d920d0"),
            ("hun_test.tsv", 28_355, "e9ec4ba9c89808864e6518e529e21cda6fe51287ad7a5a1fc23668cc64f31159"),
            ("jpn_hira_train.tsv", 306_757, "caf113a16654dc778352c8c95867922fb0aa994c484b318f5aea66dc561ea85a"),
            ("jpn_hira_dev.tsv", 38_506, "f3f2f36db83b48032767dcf49c536a0e50fa076e48865fa75638262818c4ef70"),
            ("jpn_hira_test.tsv", 38_180, "d004af19a5f200303dee48f7399034bcfc1edbd9b750bee8f19f8cb0daf9a7f6"),
            ("kor_train.tsv", 248_512, "0623be3d687864b534043585e50b1ac238b7d5564f1e7450b40be3df7329ff7c"),
            ("kor_dev.tsv", 31_598, "b1d22601f9b485f9b693dd82d832cb18695edb8a6a6ec6353d16ad729409b839"),
            ("kor_test.tsv", 30_798, "341c4691b635f300822f89334d774023702eb64bf3d827562da25862de699ff2"),
            ("vie_hanoi_dev.tsv", 35_905, "5d56e7d14dc4d90758d2d4ba0c74f3531b4e05b5344346786e2a1b1b447093ca"),
            ("vie_hanoi_test.tsv", 34_975, "ed555cb71d164b1be52e72b5bd398fe5a787e1a598418498b67dcb1ab6fb439e"),
        )
        # The repository has two versions of this file; this is the checksum of this commit's version.
        + _files(
            _SIGMORPHON_VIE,
            ("vie_hanoi_train.tsv", 281_678, "8f2a60af78668db3c2c4d201938a822d7fc7808ffd64b12504723f3ff64fea4c"),
        ),
    ),
}

ELSEWHERE = {
    "news": "it is a selection of WMT's test sets of many years, which no site offers",
    "tatoeba": "its source changes every week, and no site offers our split of it",
    "wmt14": "tensorflow-datasets has it: python -m data.prepare --config=configs/base.py",
    "wsj": "the Penn Treebank needs a licence",
}


def corpus_folder(name: str) -> str:
    """Returns the folder of a corpus: in `$VASWANI_CORPORA`, by default in the user's cache folder.

    It is not in the clone, so that a run can be scored from any folder, an installed package also finds its corpora,
    and `make clean` deletes none. `~` is not expanded: a config is the same for every user.
    """
    root = os.environ.get(FOLDER) or f"{user_cache()}/corpora"
    return f"{root}/{name}"


def advice(missing: Path) -> str:
    """Returns the advice to add to a message about a missing file of a corpus listed here; else ""."""
    name = missing.parent.name
    try:
        is_ours = missing.parent == Path(corpus_folder(name)).expanduser()
    except RuntimeError:  # the user has no home
        return ""
    if is_ours and name in CORPORA:
        return f"; `python -m data.download {name}` fetches it"
    if is_ours and name in ELSEWHERE:
        return f"; no command downloads it: {ELSEWHERE[name]}; put it there, or name another corpus"
    return ""
