"""The logit lens (nostalgebraist 2020): what the model would predict if a layer's output were its last."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from vaswani.errors import UserError
from vaswani.infer.inside.trace import Trace
from vaswani.infer.runs import Run
from vaswani.model.block import layer_norm
from vaswani.model.embed import Embedding

STACKS = ("encoder", "decoder")


class Lens(NamedTuple):
    """What is read out of a stack's embedding, 0, and of the outputs of its N layers: logits, and the best subword."""

    logits_ntv: Float[np.ndarray, "n t v"]
    best: list[list[str]]


def logit_lens(run: Run, trace: Trace, stack: str) -> Lens:
    """Returns the product of each layer's output with the softmax's matrix, or in the encoder with its embeddings.

    In a pre-norm model the outputs first pass the stack's final norm, as the last of them does in the model. In a
    post-norm model each is normalised already, by its own layer, and is multiplied as it is. The last row of the
    decoder is what the model predicts.

    Raises:
      UserError: `stack` is not one of `STACKS`.
    """
    if stack not in STACKS:
        raise UserError(f"stack is {stack!r}; it must be one of {', '.join(STACKS)}")
    config = run.model_config
    params = jax.device_put(run.params)
    source_table, _, softmax_table = config.tables
    table_vd = params[source_table if stack == "encoder" else softmax_table]
    tokenizer = run.tokenizer if stack == "encoder" else run.tokenizer.target
    bias_v = params.get("output_bias") if stack == "decoder" else None
    names = [f"{stack}/embedding", *(f"{stack}/layer_{n}" for n in range(config.depths[STACKS.index(stack)]))]
    x_ntd = jnp.stack([jnp.asarray(trace.activations[name], config.dtype) for name in names])
    if config.norm == "pre":
        x_ntd = layer_norm(config).apply({"params": params[stack]["final_norm"]}, x_ntd)
    embedding = Embedding(config, table_vd, softmax_vd=table_vd, bias_v=bias_v)
    logits_ntv = np.asarray(embedding.logits(x_ntd))
    best_nt = logits_ntv.argmax(axis=-1)
    return Lens(logits_ntv, [tokenizer.pieces(best_t.tolist()) for best_t in best_nt])
