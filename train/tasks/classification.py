"""Classification of texts, by the encoder of a masked language model: BERT's fine-tuning, with `--init`."""

from pathlib import Path

from jax.sharding import Mesh
from ml_collections import ConfigDict

from base.errors import UserError
from data.classes import Classified, classes_of
from data.prepare import prepare_all
from run.distributed import main_first
from run.folder import model_config
from train.task import Task
from train.tasks.masked_lm import objective, of_pairs


def task(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Task:
    """Returns the task of a config, whose corpora are pairs of a text and its class.

    Raises:
      UserError: the config or the corpora are at fault.
    """
    config, classes = model_config(cfg, cfg.data.vocab_size), classes_of(cfg.data.classes)
    with main_first("data"):
        tokenizer, *prepared = prepare_all(cfg.data, workdir / "tokenizer.model", sides=2)
    train, valid = (Classified(one, tokenizer, classes) for one in prepared)
    if unseen := [name for number, name in enumerate(classes) if number not in train.class_n]:
        raise UserError(f"data.classes has {unseen[0]!r}, which is the class of no text of {cfg.data.train}")
    loss = objective(config, cfg.loss.eps_ls, cfg.loss.chunk, len(classes))
    return of_pairs(cfg, mesh, loss, train, valid)
