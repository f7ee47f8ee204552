"""Diverse beam search (Vijayakumar et al. 2016): groups of beams, each kept from repeating those before it.

Groups take their step one after another, each as a beam search of its own (`search.beam`) with the same limit,
but its extensions, EOS among them, are chosen by log p minus `diversity` times the number of alive hypotheses of
earlier groups that the token has just extended. What is kept and scored is the model's own log p. A group has ended
when its most probable alive hypothesis could not enter its own finished ones or, if the stopping is "full", when it has
as many finished ones as beams. The outputs are those of all groups, best first, each once; the first group is plain
beam search.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from vaswani.model.types import Params
from vaswani.search.beam import length_penalty, most_probable, update_beams
from vaswani.search.options import Decoding
from vaswani.search.state import (
    Hypotheses,
    Model,
    Search,
    SearchState,
    clear_empty_slots,
    keep_best,
    mask_logits,
    next_logits,
    start,
)


def diverse_search(model: Model, decoding: Decoding, params: Params, inputs_bs: Int[Array, "b s"]) -> Search:
    """Searches for up to `beam` outputs of each row of `inputs_bs`, from `groups` groups of equal size."""
    beam = decoding.beam
    size = beam // decoding.groups
    limit_b, steps = model.output_limits(inputs_bs, decoding.extra_length)
    penalty_of = partial(length_penalty, alpha=decoding.alpha, kind=decoding.length_penalty)
    penalty_at_limit_b = penalty_of(limit_b)

    def advance(state: SearchState) -> SearchState:
        # The model computes all groups at once; only the choice is made group after group.
        logits_bmv, cache = next_logits(model, params, state)
        allowed_bmv = mask_logits(logits_bmv, state.step, limit_b)
        normaliser_bm1 = jax.nn.logsumexp(logits_bmv, axis=-1, keepdims=True)
        # How many alive hypotheses of earlier groups have taken each token at this step.
        counts_bv = jnp.zeros_like(logits_bmv[:, 0])
        rows_b1 = jnp.arange(len(inputs_bs))[:, None]
        groups_after = []
        parents = []
        for first in range(0, beam, size):
            own = slice(first, first + size)
            # A step of beam search with m = `size`, for this group alone.
            group = _take_group(state, own)
            diversity_penalty_bv = decoding.diversity * counts_bv
            new = most_probable(group, allowed_bmv[:, own], normaliser_bm1[:, own], 2 * size, diversity_penalty_bv)
            group, parent_bm = update_beams(group, new, penalty_of, penalty_at_limit_b, size, decoding.stopping)
            # Now the later groups avoid these tokens too; parents are numbered within the whole beam.
            alive_bm = (group.log_probs_bm > -jnp.inf).astype(counts_bv.dtype)
            counts_bv = counts_bv.at[rows_b1, group.token_bm].add(alive_bm)
            groups_after.append(group)
            parents.append(parent_bm + first)
        # The groups side by side again, [b,size] -> [b,m]; the cache follows the parents of all.
        return SearchState(
            step=state.step + 1,
            token_bm=jnp.concatenate([group.token_bm for group in groups_after], axis=1),
            log_probs_bm=jnp.concatenate([group.log_probs_bm for group in groups_after], axis=1),
            ids_bmt=jnp.concatenate([group.ids_bmt for group in groups_after], axis=1),
            cache=cache.select(jnp.concatenate(parents, axis=1)),
            finished=_join_groups([group.finished for group in groups_after]),
        )

    def begin() -> SearchState:
        # In each group one beam is alive: it is a search of its own, and equal beams would find the same.
        state = start(model, params, inputs_bs, beam, steps)
        firsts_1m = (jnp.arange(beam) % size == 0)[None]
        return state._replace(log_probs_bm=jnp.where(firsts_1m, state.log_probs_bm[:, :1], -jnp.inf))

    def result(finished: Hypotheses) -> Hypotheses:
        return _drop_repeats(clear_empty_slots(finished))

    return Search(begin, advance, result)


def _take_group(state: SearchState, own: slice) -> SearchState:
    return state._replace(
        token_bm=state.token_bm[:, own],
        log_probs_bm=state.log_probs_bm[:, own],
        ids_bmt=state.ids_bmt[:, own],
        finished=jax.tree.map(lambda field_bm: field_bm[:, own], state.finished),
    )


def _join_groups(groups: list[Hypotheses]) -> Hypotheses:
    return jax.tree.map(lambda *fields_bm: jnp.concatenate(fields_bm, axis=1), *groups)


def _drop_repeats(hypotheses: Hypotheses) -> Hypotheses:
    """Sorts the hypotheses by score, without those that an earlier group has as well."""
    # A hypothesis is dropped if one before it has the same tokens: pairs [m,m], the earlier along the last axis.
    ids_bmt = hypotheses.ids_bmt
    m = ids_bmt.shape[1]
    earlier_1mm = (jnp.arange(m)[:, None] > jnp.arange(m)[None])[None]
    same_bmm = jnp.all(ids_bmt[:, :, None] == ids_bmt[:, None], axis=-1)
    again_bm = jnp.any(same_bmm & earlier_1mm, axis=-1)
    once = Hypotheses(
        ids_bmt=ids_bmt,
        lengths_bm=jnp.where(again_bm, 0, hypotheses.lengths_bm),
        log_probs_bm=jnp.where(again_bm, -jnp.inf, hypotheses.log_probs_bm),
        scores_bm=jnp.where(again_bm, -jnp.inf, hypotheses.scores_bm),
    )
    # Merging with no others sorts them.
    nothing = jax.tree.map(lambda field_bm: field_bm[:, :0], once)
    return clear_empty_slots(keep_best(once, nothing))
