"""Inference with a trained run: translations, scores and attention maps, in Python or on the command line.

Load a run, translate, score, and look at the attention (`infer.api.LoadedRun`):

    from vaswani import load_run

    model = load_run("builtin:tatoeba")  # or your own run folder
    lines = ["Where is the train station?", "I lost my umbrella."]
    print(model.translate(lines), model.translate(lines, beam=1))

    scores = model.score(lines, ["Wo ist der Bahnhof?", "Ich habe meinen Schirm verloren."])
    print(round(scores["sacrebleu"], 2), scores["signatures"]["sacrebleu"], round(scores["perplexity"], 2))

    cross = model.attention_maps("Where is the train station?")["cross"]
    print(cross.queries, cross.keys, cross.weights_nhts.shape)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vaswani import compiled
from vaswani.errors import refuse_short_name

if TYPE_CHECKING:
    from vaswani.infer.api import LoadedRun

refuse_short_name(__name__)


def load_run(
    workdir: str | Path,
    checkpoint: str | int | None = None,
    *,
    batch_tokens: int | None = None,
    accept_changes: bool = False,
    keep_programs: bool = True,
) -> LoadedRun:
    """Loads a translation model from its config's checkpoint or from `checkpoint`: latest, 5000, average:5.

    `keep_programs` caches compiled functions for the next process, as commands do, unless jax's settings say where; see
    docs/commands.md.

    `batch_tokens` is how many source positions a batch of its translations has, padding included; None is the default
    of `infer.translate`.

    Nothing is printed; what a command would say on stderr is a warning.

    Raises:
      UserError: the folder is not a run's, or its task is not translation; it has no such checkpoint, or the
        checkpoint is damaged; the run's config or tokenizer was changed after its training, unless `accept_changes`;
        or an argument is of a wrong type, or `batch_tokens` below 1.
    """
    if keep_programs:
        compiled.keep()
    from vaswani.infer.api import load  # here, since it imports jax, which commands without a model do not need

    return load(workdir, checkpoint, batch_tokens, accept_changes)
