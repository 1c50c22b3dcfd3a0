"""The numbers that local search goes by."""

from __future__ import annotations

from typing import NamedTuple

from memplan_engine.kernels.search.contact import ContactParams
from memplan_engine.kernels.search.repair import RepairParams


class WindowParams(NamedTuple):
    """How windows around buffers without a place are packed exactly."""

    most_out: int = 6
    """How many of the buffers without a place are tried at a time."""
    freed: tuple[int, ...] = (16, 64, 256)
    """How many neighbours are freed with each of them, one size after the other."""
    most_around: int = 1_200
    """A window with more obstacles is left alone: packing it would cost more than it gains."""
    attempts: int = 3
    """Attempts of branch and bound at one window."""
    nodes: int = 2_000
    """The nodes that an attempt may visit."""
    work: int = 400_000
    """The same as nodes × buffers of the window: a node looks at all of them."""


class SearchParams(NamedTuple):
    """What `LocalSearch` spends on each of its ways, and when it takes them.

    Where a time stands beside a default, that is what it costs on one core.
    """

    effort: int = 2_000_000
    """Neighbours looked at in each of the first rounds of repair: a tenth of a second at 20,000 buffers."""
    effort_per_buffer: int = 100
    """The least effort for each buffer: what the portfolio costs grows with n, and so do the rounds."""
    most_effort: int = 64_000_000
    """The effort of a late round."""
    rounds_each: int = 8
    """Rounds of one effort, after which it doubles."""
    doublings: int = 5
    """How often it doubles at most, however large the least effort is."""
    most_above: int = 2_000
    """A start that leaves more buffers above the bound is not repaired."""
    far_off: float = 1.001
    """Arena over bound above which the quick starts count as far off: contact fit and skylines pay."""
    quick_pairs: int = 150_000_000
    """Contact fit comes before the slower starts if no more pairs of buffers are live together: about three
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
    """How many buffers are packed first, in turn, for each one that is live at the peak."""
    peak_moves: int = 6_000
    """Moves in the first window around the peak; each later one is allowed half as many more."""
    peak_buffers: int = 3_000
    """Fewer buffers are no longer than a window, or hardly: they are repaired as they are."""
    first_rounds: int = 6
    """Rounds of repair before the rest of the portfolio, which seldom finds something better."""
    patient_moves: int = 100_000
    """Without any limit, the search ends after so many moves in vain, where there are many buffers."""
    patient_moves_at_first: int = 1_000
    """The same for a problem of no buffers at all: to this `patient_moves_per_buffer` are added."""
    patient_moves_per_buffer: int = 200
    """How many moves in vain each buffer adds."""
    patiences: tuple[int, ...] = (300, 1000, 100, 3000)
    """For how many moves a repair goes on from its best moment before it goes back to it; they take turns."""
    weights: tuple[tuple[float, float], ...] = ((0.75, 0.75), (1.0, 0.5), (0.5, 0.5))
    """What leaving a buffer out costs, as powers of its size and its length: the first soon leaves few out,
    the second few bytes, the third few buffers. They take turns."""
    repair: RepairParams = RepairParams()
    windows: WindowParams = WindowParams()
    contact: ContactParams = ContactParams()
    contact_promotion: float = 0.003
    """By how much of the bound a buffer that ended above it counts as busier in the next round of
    contact fit."""
    skyline_urgencies: tuple[tuple[float, float], ...] = ((0.0, 0.0), (0.5, 8.0))
    """Of two urgencies: the powers of a buffer's size, and of the live bytes at its busiest section, by which
    its length is multiplied."""
    skyline_promotion: float = 0.3
    """By how much the logarithm of a buffer's urgency rises when it ended too high."""
    skyline_aim: float = 0.5
    """Too high is what ends above this share of the way from the bound to the best arena."""
    skyline_patience: int = 12
    """Skylines in vain after which another urgency has its turn."""


DEFAULTS = SearchParams()
