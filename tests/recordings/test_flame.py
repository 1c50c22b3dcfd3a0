"""What is live by call stack: a tree by hand, and sums that hold for the example."""

from __future__ import annotations

import memplan_examples
import numpy as np

from memplan_engine import load_recording, make_problem
from memplan_engine.callers import Callers, Frame, Stacks, line_label, only_allocates, stands_in_library
from memplan_engine.recordings.allocator_recording import EVERYTHING, choose_recording
from memplan_engine.recordings.cost import groups_at, memory_over_time, moment_at
from memplan_engine.recordings.flame import ROOT, calls_at, stacks_at
from memplan_engine.recordings.recorded_problem import recording_problem

FILE = "/home/me/train.py"
MAIN, TRAIN = Frame("main", FILE, 1), Frame("train", FILE, 2)
MLP, ATTENTION = Frame("mlp", FILE, 3), Frame("attention", FILE, 4)
LINEAR = Frame("forward", "/venv/site-packages/torch/nn/modules/linear.py", 125)
EMPTY = Frame("at::detail::empty_cuda(c10::ArrayRef<long>)", "??", 0)
ADDMM = Frame("at::_ops::addmm::call(at::Tensor const&)", "??", 0)
FRAMES = (MAIN, TRAIN, MLP, ATTENTION, LINEAR, EMPTY, ADDMM)
# Innermost first: two lines below train, one of them by way of torch; and one of main itself.
STACKS = Stacks(FRAMES, ((5, 6, 4, 2, 1, 0), (5, 3, 1, 0), (0,)))
#   steps      0  1  2        stack
#   a (100)    ├─────┤        0
#   b  (40)    ├─────┤        0
#   c  (70)    ├─────┤        1
#   d   (5)    ├─────┤        2
#   e   (9)    ├─────┤        none
#   f (900)          ├──┤     1
PROBLEM = make_problem(
    [0, 0, 0, 0, 0, 2],
    [2, 2, 2, 2, 2, 3],
    [100, 40, 70, 5, 9, 900],
    callers=Callers(np.array([0, 0, 1, 2, -1, 1]), STACKS),
)


def test_calls_are_a_tree_with_their_bytes_outermost_first():
    calls = calls_at(PROBLEM, 1)
    assert [(call.frame, call.parent, call.nbytes, call.count) for call in calls] == [
        (MAIN, ROOT, 215, 4),
        (TRAIN, 0, 210, 3),
        (MLP, 1, 140, 2),
        (ATTENTION, 1, 70, 1),
        (LINEAR, 2, 140, 2),
        (ADDMM, 4, 140, 2),
    ]
    # 40 % of 224 bytes: attention's 70 are too few.
    assert [call.frame for call in calls_at(PROBLEM, 1, 0.4)] == [MAIN, TRAIN, MLP, LINEAR, ADDMM]
    assert [(call.frame, call.nbytes) for call in calls_at(PROBLEM, 2)] == [
        (MAIN, 900),
        (TRAIN, 900),
        (ATTENTION, 900),
    ]
    assert calls_at(make_problem([0], [1], [8]), 0) == ()


def test_the_stacks_behind_one_line_are_whole():
    assert [(stack.nbytes, stack.count) for stack in stacks_at(PROBLEM, 1)] == [
        (140, 2),
        (70, 1),
        (9, 1),
        (5, 1),
    ]
    (stack,) = stacks_at(PROBLEM, 1, "train.py:3 mlp")
    assert stack.frames == (EMPTY, ADDMM, LINEAR, MLP, TRAIN, MAIN)
    assert stacks_at(PROBLEM, 1, "no stack recorded")[0].frames == ()
    assert stacks_at(PROBLEM, 1, "train.py:99 nobody") == ()


def test_calls_are_called_as_in_the_tables():
    assert line_label(MLP) == "train.py:3 mlp"
    assert line_label(ADDMM) == "at::_ops::addmm::call"
    assert [only_allocates(frame) for frame in FRAMES] == [False] * 5 + [True, False]
    assert [stands_in_library(frame) for frame in FRAMES] == [False] * 4 + [True] * 3


def test_the_example_holds_what_its_lines_hold():
    recording = choose_recording(load_recording(memplan_examples.PATH / "cuda_snapshot.pickle"), EVERYTHING)
    problem, over = recording_problem(recording), memory_over_time(recording)
    (step,) = over.failures
    moment, calls = moment_at(problem, over, step), calls_at(problem, step)
    assert calls[0].nbytes == moment.live == sum(group.nbytes for group in groups_at(problem, step))
    below = [0] * len(calls)
    for call in calls[1:]:
        below[call.parent] += call.nbytes
    assert all(sum_ in (0, call.nbytes) for sum_, call in zip(below, calls, strict=True))
    stacks = stacks_at(problem, step, moment.groups[0].caller.label)
    assert sum(stack.nbytes for stack in stacks) == moment.groups[0].nbytes
