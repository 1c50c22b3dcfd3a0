"""Dynamic shapes that no capture can have: each is refused in a line that names the dimension."""

from __future__ import annotations

import json
import zipfile

import pytest
import torch
from torch import nn
from torch.export import Dim

from memplan_engine import InputError, load
from memplan_engine.torch_capture.capture_module import capture
from tests.support.dynamic_models import Views, rows

REFUSED = {
    "z:0=a": "the input 'z', expected one of x",
    "x:5=a": "dimension 5 of x, expected 0 to 2",
    "x:0=a[9:3]": "the range of 'x:0=a[9:3]', expected LOW below HIGH",
    "x:0=a[20:30]": "size 2 in the inputs, expected an example of at least 20 and at most 30",
    "x:0=a[1:9],x:1=a[1:8]": "two ranges for a",
    "x:0=a,x:0=b": "x:0 twice",
    "x:0=max": "found 'x:0=max', expected INPUT:DIMENSION=NAME[LOW:HIGH]",
    "x:0=lambda": "found 'x:0=lambda'",
    "x:0=auto[1:3]": "expected auto without a range",
    "x": "found 'x', expected INPUT:DIMENSION=NAME[LOW:HIGH]",
    "": "found '', expected INPUT:DIMENSION=NAME[LOW:HIGH]",
    "x:2=width": "Not all values of width = x[2] in the specified range satisfy the generated guard",
}


@pytest.mark.parametrize("text", REFUSED)
def test_dimensions_that_cannot_be_dynamic_are_named(text):
    with pytest.raises(InputError) as caught:
        capture(Views(), rows(2, 8), dynamic_shapes=text, name="Mine")
    assert str(caught.value).startswith("Mine: dynamic")
    assert REFUSED[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_size_that_torch_fixes_is_said_with_torch_s_reason():
    with pytest.raises(InputError, match=r"size 1 in the inputs, expected an example of at least 2 \(torch"):
        capture(nn.Flatten(), (torch.ones(1, 4),), dynamic_shapes="input:0=batch")
    with pytest.raises(InputError, match="You marked batch as dynamic but your code specialized it to be"):
        capture(nn.Flatten(), (torch.ones(1, 4),), dynamic_shapes=({0: Dim("batch")},))

    class Fixed(nn.Module):
        def forward(self, x):
            return torch.zeros(int(x.shape[0]))

    with pytest.raises(InputError, match=r"batch = x\[0\].*Suggested fixes: batch = 6"):
        capture(Fixed(), (torch.ones(6, 4),), dynamic_shapes="x:0=batch[2:9]")


def test_a_size_that_is_no_formula_is_named():
    class Scaled(nn.Module):
        def forward(self, x):
            return nn.functional.interpolate(x, scale_factor=0.7)

    with pytest.raises(InputError, match=r"tensor .upsample\w+.: found the size .* rounded in float"):
        capture(Scaled(), (torch.ones(2, 3, 10),), dynamic_shapes="x:2=width")


def test_a_range_that_is_none_is_refused_in_a_file(tmp_path):
    exported = torch.export.export(
        nn.Linear(4, 4), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("batch", max=9)},), strict=False
    )
    good, bad = tmp_path / "good.pt2", tmp_path / "bad.pt2"
    torch.export.save(exported, good)
    for low, high in ((8, 3), (5, 9), (2**70, 2**71)):
        with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
            for member in source.namelist():
                data = source.read(member)
                if member.endswith("/models/model.json"):
                    model = json.loads(data)
                    (span,) = model["range_constraints"].values()
                    span.update(min_val=low, max_val=high)
                    data = json.dumps(model).encode()
                target.writestr(member, data)
        with pytest.raises(InputError, match=r"^bad") as caught:
            load(bad)
        assert "\n" not in str(caught.value)
