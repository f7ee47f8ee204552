"""PyTorch's side of training in lockstep (tests/lockstep.py): its own layers, its own loss, its own Adam.

The layers are `torch.nn.TransformerEncoderLayer` and `TransformerDecoderLayer`, or GPT-2's of transformers. Sinusoids,
masks, the decoder's input and the schedule are written once more here, from the paper. Whatever the rows of our batches
are, these models read one sentence a row, padded to the longest of the batch.

Without PyTorch and transformers whoever imports this is skipped, see tests/reference.py.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference import torch, transformers

# isort: split
from tests.lockstep import Losses, Training
from vaswani.ids import BOS, PAD
from vaswani.infer.convert import gpt2, table
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig
from vaswani.run.parameters import flatten_params
from vaswani.tokens import Tokens

torch.set_num_threads(1)  # for models so small, threads that wait for each other take ten times as long

_LAYERS = """
{side}.layers.{n}.self_attn.in_proj_weight         {side}/layer_{n}/self_attention/wq+wk+wv    3hk d
{side}.layers.{n}.self_attn.in_proj_bias           {side}/layer_{n}/self_attention/bq+bk+bv    3hk
{side}.layers.{n}.self_attn.out_proj.weight        {side}/layer_{n}/self_attention/wo          d he
{side}.layers.{n}.self_attn.out_proj.bias          {side}/layer_{n}/self_attention/bo          d
decoder.layers.{n}.multihead_attn.in_proj_weight   decoder/layer_{n}/cross_attention/wq+wk+wv  3hk d
decoder.layers.{n}.multihead_attn.in_proj_bias     decoder/layer_{n}/cross_attention/bq+bk+bv  3hk
decoder.layers.{n}.multihead_attn.out_proj.weight  decoder/layer_{n}/cross_attention/wo        d he
decoder.layers.{n}.multihead_attn.out_proj.bias    decoder/layer_{n}/cross_attention/bo        d
{side}.layers.{n}.linear1.weight                   {side}/layer_{n}/feed_forward/w1            f d
{side}.layers.{n}.linear1.bias                     {side}/layer_{n}/feed_forward/b1            f
{side}.layers.{n}.linear2.weight                   {side}/layer_{n}/feed_forward/w2            d f
{side}.layers.{n}.linear2.bias                     {side}/layer_{n}/feed_forward/b2            d
{side}.layers.{n}.norm{1,2}.{weight,bias}          {side}/layer_{n}/norm_{1,2}/{scale,bias}    d
decoder.layers.{n}.norm3.{weight,bias}             decoder/layer_{n}/norm_3/{scale,bias}       d
"""
_FINAL_NORMS = "{side}.norm.{weight,bias}  {side}/final_norm/{scale,bias}  d\n"
_TIED = "softmax.weight  embed  v d\n"
_UNTIED = """
softmax.weight       softmax       v d
source_embed.weight  source_embed  u d
target_embed.weight  target_embed  v d
"""
_OUTPUT_BIAS = "softmax.bias  output_bias  v\n"


class Translator(torch.nn.Module):
    """The paper's model of PyTorch's layers, with our parameters.

    Its attention always has biases: those that ours lacks are zero and not trained.
    """

    def __init__(self, config: ModelConfig, params: dict) -> None:
        super().__init__()
        c = config
        self.config = config
        options = {"d_model": c.d_model, "nhead": c.h, "dim_feedforward": c.d_ff, "dropout": 0.0, "batch_first": True}
        options |= {"layer_norm_eps": c.norm_epsilon, "norm_first": c.norm == "pre"}
        encoder_layer = torch.nn.TransformerEncoderLayer(**options)
        decoder_layer = torch.nn.TransformerDecoderLayer(**options)
        # The stacks copy their layer, but not their last norm, which the paper's have not.
        norms = [torch.nn.LayerNorm(c.d_model, eps=c.norm_epsilon) if c.norm == "pre" else None for _ in range(2)]
        self.encoder = torch.nn.TransformerEncoder(encoder_layer, c.N, norms[0], enable_nested_tensor=False)
        self.decoder = torch.nn.TransformerDecoder(decoder_layer, c.N, norms[1])
        self.softmax = torch.nn.Linear(c.d_model, c.vocab_size, bias=c.output_bias)
        self.source_embed = torch.nn.Embedding(c.vocab_size, c.d_model)
        self.target_embed = torch.nn.Embedding(c.vocab_size, c.d_model)
        if c.tie_embeddings:
            self.source_embed.weight = self.target_embed.weight = self.softmax.weight
        self._copy(params)

    def _copy(self, params: dict) -> None:
        c = self.config
        text = _LAYERS + (_TIED if c.tie_embeddings else _UNTIED)
        if c.norm == "pre":
            text += _FINAL_NORMS
        if c.output_bias:
            text += _OUTPUT_BIAS
        rows = table.rows(text, c.N)
        ours = {name: np.asarray(array) for name, array in flatten_params(params).items()}
        copies = table.write(ours, rows, table.sizes_of(c) | {"u": c.vocab_size, "v": c.vocab_size})
        theirs = dict(self.named_parameters())
        assert copies.keys() == theirs.keys()
        assert {path for row in rows for path in row.paths} >= ours.keys()
        for row in rows:
            (name,) = row.names
            theirs[name].data = torch.tensor(copies[name])
            theirs[name].requires_grad_(row.paths[0] in ours)

    def forward(self, source_bs: Any, target_bt: Any) -> Any:
        """Returns the logits [b,t,v]."""
        is_padding_bs = source_bs == PAD
        is_later_tt = torch.ones(target_bt.shape[1], target_bt.shape[1], dtype=torch.bool).triu(1)
        memory_bsd = self.encoder(self._embedded(self.source_embed, source_bs), src_key_padding_mask=is_padding_bs)
        x_btd = self.decoder(
            self._embedded(self.target_embed, target_bt),
            memory_bsd,
            tgt_mask=is_later_tt,
            tgt_key_padding_mask=target_bt == PAD,
            memory_key_padding_mask=is_padding_bs,
        )
        return self.softmax(x_btd)

    def _embedded(self, table: Any, ids_bt: Any) -> Any:
        """Returns embeddings times sqrt(d_model), plus PE(pos, 2i) = sin(pos / 10000^(2i / d)), cos at 2i + 1."""
        d_model = self.config.d_model
        position_t1 = np.arange(ids_bt.shape[1])[:, None]
        angle_ti = position_t1 / 10_000 ** (np.arange(0, d_model, 2) / d_model)
        encoding_td = np.stack([np.sin(angle_ti), np.cos(angle_ti)], axis=-1).reshape(-1, d_model)
        return table(ids_bt) * d_model**0.5 + torch.tensor(encoding_td, dtype=table.weight.dtype)


class Gpt2(torch.nn.Module):
    """GPT-2 of transformers, with parameters of its own."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        torch.manual_seed(0)
        sizes = {"vocab_size": config.vocab_size, "n_positions": config.max_positions, "n_embd": config.d_model}
        sizes |= {"n_layer": config.N, "n_head": config.h, "n_inner": config.d_ff, "bos_token_id": 1, "eos_token_id": 2}
        self.inner = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, attn_implementation="eager")).eval()

    def forward(self, target_bt: Any) -> Any:
        """Returns the logits [b,t,v]; what they are at padding does not matter."""
        return self.inner(target_bt).logits


def imported(model: Gpt2, config: ModelConfig) -> dict:
    """Returns those of GPT-2 as ours, by the importer."""
    weights = {name: weight.detach().numpy() for name, weight in model.inner.named_parameters()}
    return jax.tree.map(jnp.array, gpt2.parameters(Weights("GPT-2", weights), config))


def sentences(ids: Any, tokens: Tokens) -> list[Any]:
    """Returns the sentences of a side of a batch, one by one, of whatever row."""
    found = []
    for ids_t, segments_t in zip(ids, tokens.segments_bt, strict=True):
        found += [torch.tensor(ids_t[segments_t == number]).long() for number in range(1, segments_t.max() + 1)]
    return found


def rows(sentences: list[Any]) -> Any:
    """Returns one sentence a row."""
    return torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD)


def losses(training: Training, model: Any) -> Losses:
    """Trains their model as ours is, and returns the loss of each update."""
    optim = training.cfg.optim
    # Theirs spreads the smoothing over all v tokens: the true one has 1 - e + e / v, which is to be 1 - eps_ls.
    v = training.model.vocab_size
    smoothing = training.cfg.loss.eps_ls * v / (v - 1)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(trained, betas=(optim.b1, optim.b2), eps=optim.eps)
    found: Losses = []
    for n, batch in enumerate(training.batches, 1):
        adam.param_groups[0]["lr"] = training.model.d_model**-0.5 * min(n**-0.5, n * optim.warmup**-1.5)
        labels = sentences(batch.labels_bt, batch.target)
        # "The output embeddings are offset by one position."
        shifted = [torch.cat([torch.tensor([BOS]), label[:-1]]) for label in labels]
        inputs = [rows(shifted)]
        if isinstance(model, Translator):
            inputs.insert(0, rows(sentences(batch.source.ids_bt, batch.source)))
        logits_btv = model(*inputs)
        loss = torch.nn.functional.cross_entropy(
            logits_btv.flatten(0, 1), rows(labels).flatten(), ignore_index=PAD, label_smoothing=smoothing
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
        found.append(loss.item())
    return found


def pair(folder: Path, case: str) -> tuple[Training, Any]:
    """Returns our training of a case and their model, with the same parameters: ours, or GPT-2's own."""
    training = Training.of(folder, case)
    if training.cfg.task == "language_model":
        model = Gpt2(training.model)
        return training.with_params(imported(model, training.model)), model
    return training, Translator(training.model, training.state.params)
