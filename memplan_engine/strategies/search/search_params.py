"""The numbers that local search goes by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SearchParams:
    """What `LocalSearch` spends on each of its ways, and when it takes them.

    Where a time stands beside a default, that is what it costs on one core.
    """

    effort: int = 2_000_000
    """Neighbours looked at in each of the first rounds of repair: a tenth of a second at 20,000 buffers."""
    effort_per_buffer: int = 100
    """The least effort for each buffer: what the portfolio costs grows with n, and so do the rounds."""
    most_effort: int = 64_000_000
    """The effort of a late round; it doubles with every 8 rounds up to this."""
    most_above: int = 2_000
    """A start that leaves more buffers above the bound is not repaired."""
    far_off: float = 1.001
    """Arena over bound above which the quick starts count as far off: contact fit and skylines pay."""
    quick_pairs: int = 150_000_000
    """Contact fit comes before the slower starts if no more pairs of buffers are alive together: about three
    seconds' worth."""
    soon_pairs: int = 25_000_000
    """The same before the peak is packed first, about a second's worth."""
    skyline_pairs: int = 40_000_000
    """Skylines are tried, at least one, until they have met so many pairs: about half a second."""
    pairs_per_buffer: int = 30
    """What a buffer costs a skyline by itself, in pairs."""
    most_skylines: int = 60
    full: float = 0.65
    """Live bytes, on average over the sections, as a share of their peak, from which skylines are tried.
    Where steps hold less, few buffers lie above the bound, and repair has them down sooner."""
    wide: float = 1.02
    """A skyline so far above the bound is lowered in steps before anything is repaired below the bound."""
    near: float = 1.01
    """How near these steps come."""
    brief: int = 8
    """The effort of such a step is the so manieth part of a round's."""
    smallest_step: float = 1 / 16
    """Of the way to the bound: when a smaller step would be needed, it is time for something else."""
    peak_shares: tuple[float, ...] = (1.2, 2.0, 1.5)
    """How many buffers are packed first, in turn, for each one that is alive at the peak."""
    peak_moves: int = 6_000
    """Moves in the first window around the peak; each later one is allowed half as many more."""
    peak_buffers: int = 3_000
    """Fewer buffers are no longer than a window, or hardly: they are repaired as they are."""
    first_rounds: int = 6
    """Rounds of repair before the rest of the portfolio, which seldom finds something better."""
    patient_moves: int = 100_000
    """Without any limit, the search ends after so many moves in vain."""
    patiences: tuple[int, ...] = (300, 1000, 100, 3000)
    """For how many moves a repair goes on from its best moment before it goes back to it; they take turns."""
    weights: tuple[tuple[float, float], ...] = ((0.75, 0.75), (1.0, 0.5), (0.5, 0.5))
    """What leaving a buffer out costs, as powers of its size and its length: the first soon leaves few out,
    the second few bytes, the third few buffers. They take turns."""
