"""What an output of a search must be like: a prefix, a least length, no repetition, and phrases that must appear.

All but the last are edits of a step's logits. Phrases need more than forbidding, since their tokens may be unlikely:
the beam is shared among hypotheses that hold more or fewer of their tokens (dynamic beam allocation, Post and Vilar
2018; vectorised as by Hu et al. 2019). In its simplest correct form:

- The bank of a hypothesis is the number of phrase tokens that it holds: the tokens of completed phrases, plus the
  longest prefix of an open phrase that it ends with.
- Besides its most probable extensions, each hypothesis is extended by the next token of each phrase it lacks.
- EOS is allowed once every phrase appears.
- Of the extensions the first of each bank by log p are chosen, larger banks first; then the second of each; and so on.

The first of the largest bank gains a token at each step, so every output has its phrases if the limit leaves room.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vaswani.ids import EOS
from vaswani.model.types import Leaf


class Spelling(NamedTuple):
    """What tokens must spell, each in its own way: the beginning of a word, say, whose end is free.

    A hypothesis that has spelled l of the `size_b` bytes may go on with the tokens of `allowed_blv` alone; the last of
    them may spell more. `bytes_bv` is how many bytes each token spells, 0 for EOS and other tokens of no text;
    it is the same in every row, which may leave the batch.
    """

    size_b: Int[Array, " b"]
    allowed_blv: Bool[Array, "b l v"]
    bytes_bv: Int[Array, "b v"]

    def following(
        self, ids_bmt: Int[Array, "b m t"], begins_b: Int[Array, " b"]
    ) -> tuple[Bool[Array, "b m"], Bool[Array, "b m v"]]:
        """Returns whether a hypothesis has yet to spell some of it, from token `begins_b` on, and what may follow."""
        is_spelling_bt = jnp.arange(ids_bmt.shape[2])[None] >= begins_b[:, None]
        # Padding, of 0 bytes, is behind the newest token.
        bytes_bmt = jnp.take_along_axis(self.bytes_bv[:, None], ids_bmt, axis=-1)
        spelled_bm = jnp.sum(bytes_bmt * is_spelling_bt[:, None], axis=-1)
        place_bm = jnp.minimum(spelled_bm, self.allowed_blv.shape[1] - 1)
        rows_b1 = jnp.arange(len(ids_bmt))[:, None]
        return spelled_bm < self.size_b[:, None], self.allowed_blv[rows_b1, place_bm]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rules:
    """The rules; the default allows everything. A sentence's limit comes first: its last token is EOS.

    `prefix_bp` are the tokens that an output begins with, then 0, and `spelling` what the tokens after them spell; the
    other edits do not apply to them. The first `given` of the prefix, such as a language, are no choice of the model's:
    their log p counts as 0. An output has at least `min_length` tokens besides EOS, and holds no sequence of
    `no_repeat` tokens twice (0: it may). Phrases `phrases_bcl`, c for each sentence, are tokens, then 0; a row of zeros
    is none.
    """

    prefix_bp: Leaf | None = None
    spelling: Spelling | None = None
    phrases_bcl: Leaf | None = None
    min_length: int = field(default=0, metadata={"static": True})
    no_repeat: int = field(default=0, metadata={"static": True})
    given: int = field(default=0, metadata={"static": True})

    def edit(
        self,
        logits_bmv: Float[Array, "b m v"],
        ids_bmt: Int[Array, "b m t"],
        step: Int[Array, ""],
        limit_b: Int[Array, " b"],
    ) -> Float[Array, "b m v"]:
        """Sets to -inf the tokens that may not follow the first `step` ones of `ids_bmt`."""
        token_11v = jnp.arange(logits_bmv.shape[-1])[None, None]
        banned_bmv = jnp.zeros(logits_bmv.shape, bool)
        if self.no_repeat:
            banned_bmv = find_repeats(ids_bmt, step, self.no_repeat, logits_bmv.shape[-1])
        if self.min_length:
            banned_bmv = banned_bmv | ((token_11v == EOS) & (step < self.min_length))
        # What is to be spelled comes right after the prefix.
        if self.spelling is not None:
            begins_b = jnp.zeros(len(ids_bmt), jnp.int32)
            if self.prefix_bp is not None:
                begins_b = jnp.sum(self.prefix_bp > 0, axis=1)
            is_open_bm, allowed_bmv = self.spelling.following(ids_bmt, begins_b)
            banned_bmv = jnp.where(is_open_bm[..., None], ~allowed_bmv, banned_bmv)
        # Within the prefix its next token is the only one, whatever the rules above say; 0 ends a prefix.
        if self.prefix_bp is not None:
            p = self.prefix_bp.shape[1]
            next_b = self.prefix_bp[:, jnp.minimum(step, p - 1)]
            forced_b = jnp.where(step < p, next_b, 0)
            forced_b11 = forced_b[:, None, None]
            banned_bmv = jnp.where(forced_b11 > 0, token_11v != forced_b11, banned_bmv)
        # At the limit only EOS is left (`mask_logits`): to ban it would leave nothing.
        banned_bmv = banned_bmv & (step + 1 < limit_b)[:, None, None]
        # A hypothesis without all of its phrases is no output, even at the limit.
        if self.phrases_bcl is not None:
            complete_bm = jnp.all(find_phrases(self.phrases_bcl, ids_bmt), axis=-1)
            banned_bmv = banned_bmv | ((token_11v == EOS) & ~complete_bm[..., None])
        return jnp.where(banned_bmv, -jnp.inf, logits_bmv)


def find_repeats(
    ids_bmt: Int[Array, "b m t"], step: Int[Array, ""], n: int, vocabulary: int
) -> Bool[Array, "b m {vocabulary}"]:
    """Returns the tokens that, after the first `step`, would complete a sequence of n tokens for the second time."""
    b, m, t = ids_bmt.shape
    place_t = jnp.arange(t)
    # n tokens, all of them written, end at these places.
    is_within_t = (n - 1 <= place_t) & (place_t < step)
    ends_bmt = jnp.broadcast_to(is_within_t, (b, m, t))
    # Of these, keep the ends whose n - 1 tokens before are the n - 1 newest ones.
    for back in range(1, n):
        newest_bm1 = jax.lax.dynamic_slice_in_dim(ids_bmt, step - back, 1, axis=2)
        ends_bmt = ends_bmt & (jnp.roll(ids_bmt, back, axis=2) == newest_bm1)
    # The token at such an end must not come next: from places [b,m,t] to tokens [b,m,v].
    rows_b11 = jnp.arange(b)[:, None, None]
    beams_1m1 = jnp.arange(m)[None, :, None]
    return jnp.zeros((b, m, vocabulary), bool).at[rows_b11, beams_1m1, ids_bmt].max(ends_bmt)


def find_phrases(phrases_bcl: Int[Array, "b c l"], ids_bmt: Int[Array, "b m t"]) -> Bool[Array, "b m c"]:
    """Returns which phrases appear in the tokens; an empty one does."""
    b, m, t = ids_bmt.shape
    # Whether phrase c begins at token t: true until one of its tokens j differs.
    here_bmct = jnp.ones((b, m, phrases_bcl.shape[1], t), bool)
    for j in range(phrases_bcl.shape[2]):
        later_bmt = jnp.pad(ids_bmt[..., j:], ((0, 0), (0, 0), (0, min(j, t))))
        token_b1c1 = phrases_bcl[..., j][:, None, :, None]
        # A phrase shorter than j has 0 here. Beyond the hypothesis is padding, which no phrase has.
        here_bmct = here_bmct & ((token_b1c1 == 0) | (later_bmt[:, :, None] == token_b1c1))
    return jnp.any(here_bmct, axis=-1)


def match_prefixes(
    phrases_bcl: Int[Array, "b c l"], ids_bmt: Int[Array, "b m t"], step: Int[Array, ""]
) -> Int[Array, "b m c"]:
    """Returns the length of the longest proper prefix of each phrase that the first `step` tokens end with."""
    lengths_bc = jnp.sum(phrases_bcl > 0, axis=-1)
    # Every length is tried, ascending: the last that fits is the longest.
    longest_bmc = jnp.zeros((*ids_bmt.shape[:2], phrases_bcl.shape[1]), jnp.int32)
    for length in range(1, min(phrases_bcl.shape[2], ids_bmt.shape[2] + 1)):
        tail_bml = jax.lax.dynamic_slice_in_dim(ids_bmt, step - length, length, axis=2)
        # The newest `length` tokens [b,m,1,l] against the first ones of each phrase [b,1,c,l].
        ends_bmc = jnp.all(tail_bml[:, :, None] == phrases_bcl[:, None, :, :length], axis=-1)
        # Shorter than the phrase, since a whole one counts as complete; the slice is clamped where step < length.
        ends_bmc = ends_bmc & (length < lengths_bc)[:, None] & (length <= step)
        longest_bmc = jnp.where(ends_bmc, length, longest_bmc)
    return longest_bmc


def count_phrase_tokens(
    phrases_bcl: Int[Array, "b c l"], ids_bmt: Int[Array, "b m t"], step: Int[Array, ""]
) -> Int[Array, "b m"]:
    """Returns the bank of each hypothesis of `step` tokens; see the top of this file."""
    # All tokens of the phrases that are complete.
    complete_bmc = find_phrases(phrases_bcl, ids_bmt)
    lengths_bc = jnp.sum(phrases_bcl > 0, axis=-1)
    completed_bm = jnp.sum(complete_bmc * lengths_bc[:, None], axis=-1)
    # The hypothesis can go on with one open phrase only: the one that it has most of.
    open_bmc = jnp.where(complete_bmc, 0, match_prefixes(phrases_bcl, ids_bmt, step))
    return completed_bm + jnp.max(open_bmc, axis=-1)


def next_constraint(
    phrases_bcl: Int[Array, "b c l"], ids_bmt: Int[Array, "b m t"], step: Int[Array, ""]
) -> Int[Array, "b m c"]:
    """Returns the next token of each phrase that a hypothesis lacks; 0 where it lacks none."""
    # After a prefix of n tokens comes the phrase's token number n, counted from 0.
    at_bmc1 = match_prefixes(phrases_bcl, ids_bmt, step)[..., None]
    next_bmc = jnp.take_along_axis(phrases_bcl[:, None], at_bmc1, axis=-1)[..., 0]
    return jnp.where(find_phrases(phrases_bcl, ids_bmt), 0, next_bmc)


def allocate(bank_bk: Int[Array, "b k"], log_probs_bk: Float[Array, "b k"]) -> Int[Array, "b k"]:
    """Returns the order in which extensions are chosen: the first of each bank, larger banks first, then the second.

    Those of log-probability -inf come last.
    """
    # Along the last axis: which others precede an extension by log p, and of equal ones by their place.
    place_k = jnp.arange(log_probs_bk.shape[1])
    comes_first_1kk = (place_k[None, :] < place_k[:, None])[None]
    own_bk1 = log_probs_bk[:, :, None]
    others_b1k = log_probs_bk[:, None, :]
    precedes_bkk = (others_b1k > own_bk1) | ((others_b1k == own_bk1) & comes_first_1kk)
    # Its rank within its bank is the number of those that are in the same bank.
    same_bank_bkk = bank_bk[:, None, :] == bank_bk[:, :, None]
    rank_bk = jnp.sum(precedes_bkk & same_bank_bkk, axis=-1)
    # By the last key first: the living, then the rank, then the larger bank.
    dead_bk = jnp.isneginf(log_probs_bk)
    return jnp.lexsort((-bank_bk, rank_bk, dead_bk), axis=-1)
