"""The parts, in the order of their worth, and the seconds that each takes on an H200: estimates, until it has run."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path

from lab.gpu import decoding, layers, numerics, step, training
from lab.gpu.sitting import Part
from lab.gpu.step import FORMS, OURS, TUNED
from vaswani.data.corpora import corpus_folder
from vaswani.errors import UserError

COMMAND_BUFFERS = (("XLA_FLAGS", "--xla_gpu_enable_command_buffer=+WHILE"),)
DOT_MERGER = (("XLA_FLAGS", "--xla_gpu_dot_merger_threshold_mb=0"),)
DETERMINISTIC = (("XLA_FLAGS", "--xla_gpu_deterministic_ops=true"),)
LANGUAGES = ("dut", "hbs_latn", "bul", "kor")  # Dong's four
ROWS = ("base", "D1", "C1", "A1", "D4", "B1", "C7", "big")  # of Table 3, by the paper's order of effect
SEEDS = (0, 1, 2)
MORE_SEEDS = (3, 4, 5)
CORPORA = {  # that parts read, by the beginning of their names
    "public log": "multi30k_spacy",
    "published: Multi30k": "multi30k_published",
    "published: Dong": "sigmorphon2021",
    "tatoeba": "tatoeba",
    "table 3": "tatoeba",
}
PACKAGES = {"step": "torch", "decoding": "ctranslate2"}


def update(model: str, form: str, more: str = "", environment: tuple[tuple[str, str], ...] = ()) -> Part:
    """Returns the part that measures an update of a form."""
    name = ", ".join(filter(None, (f"step: {model}: {form}", more)))
    return Part(name, 40, partial(step.update, model=model, form=form), environment)


PARTS = [
    # The paper's base model under the paper's schedule, along published curves. The first compiles for all.
    Part("public log: B, seed 0", 250, partial(training.public_log, log="B", seeds=SEEDS[:1])),
    Part("public log: B, seeds 1 and 2", 110, partial(training.public_log, log="B", seeds=SEEDS[1:])),
    Part("public log: A", 150, partial(training.public_log, log="A", seeds=SEEDS)),
    Part("public log: C", 180, partial(training.public_log, log="C", seeds=SEEDS)),
    Part("published: Multi30k", 260, partial(training.multi30k_published, seeds=MORE_SEEDS)),
    Part("published: Dong", 180, partial(training.dong, languages=LANGUAGES)),
    # One update, beside PyTorch's; then what explains the difference.
    Part("step: matrix peak", 15, step.matrix_peak),
    *(
        update(model, form)
        for model, form in (("base", OURS), ("base", "PyTorch"), ("big", OURS), ("big", "PyTorch, bfloat16"))
    ),
    update("base", OURS, "dot merger 0", DOT_MERGER),
    *(update("base", form) for form in FORMS if form != OURS),
    Part("step: base: losses of both", 40, step.losses),
    # A model of the paper's size, trained to its end on text.
    Part("tatoeba: base", 300, training.base_to_the_end),
    *(Part(f"numerics: cudnn, d_k {width}", 20, partial(numerics.kernel, width=width)) for width in numerics.WIDTHS),
    Part("numerics: whole model, cudnn", 60, numerics.whole_model),
    Part("numerics: killed and resumed", 90, numerics.killed, DETERMINISTIC),
    *(Part(f"layers: {mixer}", 40, partial(layers.update, mixer=mixer)) for mixer in layers.LAYERS),
    Part("decoding: 1: ours", 20, partial(decoding.ours, sentences=1)),
    Part("decoding: 1: ours, command buffers", 20, partial(decoding.ours, sentences=1), COMMAND_BUFFERS),
    Part("decoding: 512: ours", 25, partial(decoding.ours, sentences=512)),
    Part("decoding: 512: ours, command buffers", 25, partial(decoding.ours, sentences=512), COMMAND_BUFFERS),
    Part("decoding: 1: CTranslate2", 30, partial(decoding.ctranslate2, sentences=1)),
    Part("decoding: 512: CTranslate2", 25, partial(decoding.ctranslate2, sentences=512)),
    update("base", "PyTorch, bfloat16"),
    *(Part(f"step: {model}: {TUNED}", 150, partial(step.update, model=model, form=TUNED)) for model in ("base", "big")),
    *(Part(f"table 3: {row}", 110, partial(training.row_of_table_3, row=row)) for row in ROWS),
]


def check_supplies(parts: list[Part], *, with_corpora: bool) -> None:
    """Raises a `UserError` that names the first package or corpus which a part needs and which is not there."""
    for part in parts:
        for beginning, package in PACKAGES.items():
            if part.name.startswith(beginning) and find_spec(package) is None:
                raise UserError(f"{part.name}: needs {package}: pip install -e '.[bench]', or leave it out with --only")
        for beginning, name in CORPORA.items():
            where = Path(corpus_folder(name)).expanduser()
            if with_corpora and part.name.startswith(beginning) and not where.is_dir():
                raise UserError(f"{part.name}: needs the corpus {where}; see --corpora, or leave it out with --only")
