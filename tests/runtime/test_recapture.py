"""What is compared of a file and of an edit of it: what they give, print and leave, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from memplan_engine.runtime.trial.recapture import recapture

LEAVING = """
import torch
from torch import nn

SEEN = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.kept, self.named, self.hooked = [], {}, []
        self.fc.register_forward_hook(lambda layer, args, result: self.hooked.append(result))

    def forward(self, x):
        h = self.fc(x)
        KEEP
        y = torch.exp(h)
        z = self.say(y, "y")
        w = self.say(y, "z")
        return z.sum() + w.sum()

    def say(self, x, name):
        print(name)
        return x + 1

def build():
    return Net().eval(), (torch.rand(4, 8),)

def train():
    return Net(), (torch.rand(4, 8),)
"""
IN_PLACE = ("torch.exp(h)", "torch.exp_(h)")
NOTHING = ("torch.exp(h)", "h.nothing")


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("self.kept.append(h)", "model.kept[1] is not the same"),
        ("self.last = h", "model.last is not the same"),
        ("self.named['h'] = (h, 1)", "model.named['h'][0] is not the same"),
        ("SEEN.append(h)", "SEEN[1] is not the same"),
        ("self.mean = h.mean().item()", ""),
    ],
)
@pytest.mark.slow
def test_an_edit_that_changes_what_the_model_keeps_is_never_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = LEAVING.replace("KEEP", keep).replace("register_forward_hook", "register_forward_pre_hook")
    text = text.replace("lambda layer, args, result: self.hooked.append(result)", "lambda *given: None")
    (tmp_path / "leaving.py").write_text(text)
    (found,) = recapture("leaving.py:build", [text.replace(*IN_PLACE)])
    assert (found.same, found.wrong) == (not said, said)


@pytest.mark.slow
def test_an_edit_that_changes_prints_hooks_or_training_is_never_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hooked = LEAVING.replace("KEEP", "pass")
    plain = hooked.replace("self.fc.register", "if False: self.fc.register")
    z, w = (line for line in plain.splitlines(keepends=True) if "self.say(y" in line)
    (tmp_path / "leaving.py").write_text(hooked)
    (found,) = recapture("leaving.py:build", [hooked.replace(*IN_PLACE)])
    assert (found.same, "hooked[1] is not the same" in found.wrong) == (False, True)
    # exp's result is what its backward pass needs, and an addition in place overwrites it.
    untrainable = plain.replace("return x + 1", "return x.add_(0)")
    (tmp_path / "leaving.py").write_text(plain)
    printed, same = recapture("leaving.py:build", [plain.replace(z + w, w + z), plain.replace(*IN_PLACE)])
    assert (printed.same, printed.wrong) == (False, "what is printed is not the same")
    assert (same.same, same.wrong, same.untrainable) == (True, "", "")
    zero = plain.replace("return x + 1", "return x + 0")
    (tmp_path / "leaving.py").write_text(zero)
    (evaled,) = recapture("leaving.py:build", [untrainable])
    assert (evaled.same, "no backward pass" in evaled.untrainable) == (True, True)
    (trained,) = recapture("leaving.py:train", [untrainable])
    assert (trained.same, "train mode" in trained.wrong) == (False, True)


KEEPERS = """
import functools
import torch
import store
from torch import nn

SEEN = []

def save(kept, layer, args, result):
    kept.append(result)

@functools.lru_cache
def table(size):
    return torch.linspace(0, 1, size)

class Slots:
    __slots__ = ("kept",)

class Block(nn.Module):
    features = []

    def __init__(self):
        super().__init__()
        self.fc, self.cache, self.slots, self.last = nn.Linear(8, 8), {}, Slots(), None
        self.act = nn.Identity()
        self.act.register_forward_hook(functools.partial(save, []))

    def forward(self, x):
        h = HOW
        KEEP
        y = torch.exp(h)
        return AFTER

def build():
    return nn.Sequential(Block()).eval(), (torch.rand(4, 8),)
"""


STORE = """
import functools
import torch

KEPT = []

@functools.lru_cache
def table(size):
    return torch.linspace(0, 1, size)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "keep", "after"),
    [
        ("self.fc(x)", "SEEN.append(h)", "y"),
        ("self.fc(x)", "Block.features.append(h)", "y"),
        ("self.act(self.fc(x))", "pass", "y"),
        ("self.fc(x)", "self.cache['a', 0] = h", "y"),
        ("self.fc(x)", "store.KEPT.append(h)", "y"),
        ("self.fc(x)", "self.slots.kept = h", "y"),
        ("table(8)", "pass", "self.fc(x) + y"),
        ("store.table(8)", "pass", "self.fc(x) + y"),
        ("self.cache.setdefault('t', torch.linspace(0, 1, 8)) + 0", "before, self.last = self.last, h",
         "self.fc(x) + y + (0 if before is None else before)"),
    ],
)  # fmt: skip
def test_whoever_keeps_what_is_written_over_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, keep: str, after: str
) -> None:
    """Also where no path from the model leads there, and where only a second call meets it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store.py").write_text(STORE)
    text = KEEPERS.replace("HOW", how).replace("KEEP", keep).replace("AFTER", after)
    (tmp_path / "keepers.py").write_text(text)
    wrong, crash, same = recapture(
        "keepers.py:build", [text.replace(*IN_PLACE), text.replace(*NOTHING), text + "\n"]
    )
    assert not wrong.same
    assert wrong.wrong.endswith("is not the same")
    # Whatever one of them raises, the next one has its turn.
    assert (crash.same, "nothing" in crash.wrong) == (False, True)
    assert (same.same, same.before, same.after) == (True, same.after, same.before)
