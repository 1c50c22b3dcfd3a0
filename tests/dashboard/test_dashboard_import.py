"""The Import page, without a browser: what it previews, opens as what, and refuses."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import documents

from tests.support.apptest import CSV, address, check, figure, open_app, said, upload, widget

PLAN = "id,lower,upper,size,offset\na,0,4,10,0\nb,1,3,20,10\nc,2,4,10,30\n"
OVERLAPPING = PLAN.replace("10,30", "10,25")
COLLIDING = "id,lower,upper,size,offset\na,0,4,10,0\nb,1,3,20,5\nc,2,4,10,\n"


@pytest.fixture(autouse=True)
def _own_uploads(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["app.py"])


def imported(app):
    """The Import page again, with what is open now."""
    return check(app.switch_page("views/import_file.py").run())


def test_an_example_that_is_picked_opens_in_inspect():
    app = open_app("import")
    assert "Open now: gpt2.json, auto · memplan JSON" in said(app.caption)
    app.selectbox[0].set_value("example:resnet50")
    check(app.run())
    assert address(app)["doc"] == "example:resnet50"
    assert figure(app, "Arena") == "9.19 MiB"
    app = imported(app)
    assert (figure(app, "buffers"), figure(app, "ops")) == ("158", "175")
    assert "Open now: resnet50.json, auto · memplan JSON" in said(app.caption)


def test_import_opens_offsets_as_a_plan_or_as_fixed():
    app = upload(open_app("import"), "p.csv", PLAN)
    assert widget(app.selectbox, "Strategy").value == "imported"
    assert address(app)["as_plan"] == "1"
    assert figure(app, "Arena") == "40 B"
    app = imported(app)
    assert figure(app, "includes a plan") == "imported"
    widget(app.checkbox, "Open as a finished plan").uncheck()
    check(app.run())
    app.button[0].click()
    check(app.run())
    assert "as_plan" not in address(app)
    assert "includes a plan" not in [each.label for each in imported(app).metric]
    app = open_app("import")
    widget(app.checkbox, "Open as a finished plan").uncheck()
    assert "as_plan" not in address(upload(check(app.run()), "p.csv", PLAN))


def test_a_plan_that_overlaps_is_shown_with_its_violations():
    app = upload(open_app("import"), "p.csv", OVERLAPPING)
    message = "b and c overlap at steps 2–2 in bytes 25–29 (5 bytes)"
    assert [each.label for each in app.expander] == [":red[**Not valid: 1 violation**]"]
    assert message in [each.value for each in app.text]
    app = imported(app)
    assert said(app.warning) == [f"Not valid, 1 violation: {message}"]
    # Above the chart: below it, nobody sees it who does not scroll.
    kinds = [each.type for each in app.main]
    assert kinds.index("warning") < kinds.index("bidi_component")


def test_fixed_offsets_that_collide_are_told_and_cannot_be_opened():
    app = upload(open_app("import"), "p.csv", COLLIDING)
    assert "fixed offsets collide: a and b overlap" in said(app.error)[0]
    assert "Open now: gpt2.json, auto · memplan JSON" in said(app.caption)


def test_import_options_reach_the_plan():
    app = open_app("import")
    widget(app.number_input, "Alignment, bytes").set_value(64)
    check(app.run())
    app = upload(app, "p.csv", CSV)
    assert figure(app, "Arena") == "138 B"
    assert address(app)["alignment"] == "64"
    key = address(app)["doc"]
    widget(app.selectbox, "Graph").set_value("example:gpt2")
    check(app.run())
    assert "alignment" not in address(app)
    widget(app.selectbox, "Graph").set_value(key)
    check(app.run())
    assert figure(app, "Arena") == "138 B"


def test_graph_inputs_are_planned_on_request():
    app = open_app("import", doc="example:teaching_view")
    before = int(figure(app, "buffers"))
    widget(app.checkbox, "Plan graph inputs").check()
    check(app.run())
    app.button[0].click()
    app = imported(check(app.run()))
    assert int(figure(app, "buffers")) == before + 1


def test_an_onnx_with_open_dimensions_has_symbols_until_they_are_bound(tmp_path):
    onnx = pytest.importorskip("onnx")
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    graph = onnx.helper.make_graph(
        [node("Relu", ["x"], ["h"]), node("Relu", ["h"], ["y"])], "g",
        [info("x", 1, ["batch", 8])], [info("y", 1, ["batch", 8])],
    )  # fmt: skip
    app = upload(open_app("import"), "m.onnx", onnx.helper.make_model(graph).SerializeToString())
    assert not app.error
    app = imported(app)
    assert figure(app, "symbols") == "batch"
    field = widget(app.text_input, "Symbolic dimensions (ONNX)")
    field.set_value("batch")
    check(app.run())
    assert "expected NAME=VALUE" in app.error[0].value.replace("\\", "")
    widget(app.text_input, "Symbolic dimensions (ONNX)").set_value("batch=4")
    check(app.run())
    assert not app.error
    app.button[0].click()
    check(app.run())
    assert address(app)["dims"] == "batch=4"
    assert figure(app, "Arena") == "256 B"
    assert not app.slider


def test_an_upload_that_cannot_be_read_is_not_kept():
    app = upload(open_app("import"), "row.csv", CSV + "d,3,2,5\n")
    assert "row.csv: line 5" in app.error[0].value.replace("\\", "")
    assert not [key for key in documents.catalogue() if key.startswith("upload:")]
    assert not app.button
