"""The paths and shapes of the parameters of every family: a run's checkpoint, and its import, hold these names."""

import hashlib
import json
from importlib import import_module
from pathlib import Path

import jax
import pytest
from flax.traverse_util import flatten_dict

from vaswani.tasks import task_of

# By config: how many arrays there are, and the digest of their paths and shapes.
GOLDEN = json.loads((Path(__file__).parent / "parameter_trees.json").read_text(encoding="utf-8"))


def tree_of(name: str) -> list[str]:
    """Returns a line for each array of a config's model, such as "encoder/layer_0/self_attention/wq (512, 8, 64)"."""
    file, _, argument = name.partition(":")
    get_config = import_module(f"vaswani.configs.{file}").get_config
    cfg = get_config(argument) if argument else get_config()
    task = task_of(cfg.task)
    objective = task.objective(cfg, task.config(cfg, cfg.data.vocab_size))
    shapes = flatten_dict(jax.eval_shape(objective.init, jax.random.key(0)), sep="/")
    return [f"{path} {array.shape}" for path, array in sorted(shapes.items())]


@pytest.mark.parametrize("name", GOLDEN)
def test_the_parameters_have_the_paths_and_shapes_that_checkpoints_hold(name: str) -> None:
    tree = tree_of(name)
    digest = hashlib.sha256("\n".join(tree).encode()).hexdigest()[:16]
    assert [len(tree), digest] == GOLDEN[name], "\n".join(tree)
