"""The cache of mixers whose memory of a sentence has a fixed size."""

from typing import NamedTuple

from jaxtyping import Array, Int

from model.search.state import take_beams


class BeamState(NamedTuple):
    """What a mixer remembers of each beam: arrays [b,m,..], of the same size however many tokens there were."""

    arrays: tuple[Array, ...]

    def select(self, parents_bm: Int[Array, "b m"]) -> "BeamState":
        """Returns the state in which beam i goes on from what was beam `parents_bm[:, i]`."""
        return BeamState(tuple(take_beams(x_bm, parents_bm) for x_bm in self.arrays))

    def grow(self, slots: int) -> "BeamState":
        """Returns the state itself, which needs no more room."""
        return self
