"""The order of ops on the Replay page: by hand, greedy predicted, step by step, and the cut at the end."""

from __future__ import annotations

import pytest

pytest.importorskip("streamlit")
from memplan_dashboard.session import progress

from tests.support.apptest import CSV, address, check, chips_of, open_app, said, upload

BEST = [0, 5, 6, 1, 2, 3, 4, 7]


def order_page(**parameters):
    return open_app("replay", **{"doc": "example:teaching_order", "mode": "order", **parameters})


def ready(app, kind="order"):
    """The labels of the ops that are offered, by number."""
    return {
        int(each.key.rpartition("_")[2]): each.label.replace("\\", "")
        for each in app.button
        if each.key and each.key.startswith(f"{kind}_") and each.key.rpartition("_")[2].isdigit()
    }


def click(app, key):
    app.button(key=key).click()
    return check(app.run())


def test_an_order_by_hand_step_by_step_until_the_cut_proves_it():
    app = order_page(lesson="7")
    assert chips_of(app) == [
        "peak so far 0 B", "live now 0 B", "as written 26 KiB", "greedy 24 KiB", "bound 16 KiB",
    ]  # fmt: skip
    assert ready(app) == {0: "a: +8 KiB, 8 KiB, then 8 KiB", 3: "d: +1 KiB, 1 KiB, then 1 KiB"}
    for unit in BEST[:3]:
        click(app, f"order_{unit}")
    assert chips_of(app)[:2] == ["peak so far 16 KiB", "live now 10 KiB"]
    assert address(app)["order"] == "0,5,6"
    assert not any("cut" in text for text in said(app.markdown))
    assert 7 not in progress.done()
    for unit in BEST[3:]:
        click(app, f"order_{unit}")
    assert not ready(app)
    assert "16 KiB: no order of these ops has a lower peak, proved by one cut." in said(app.success)
    proof = next(text for text in said(app.markdown) if "right before c" in text)
    assert "{a, b, f, g} leaves the fewest bytes: b 6 KiB, g 2 KiB" in proof
    assert "With the 8 KiB that c makes that is 16 KiB, always." in proof
    assert 7 in progress.done()
    assert any(text.startswith("Greedy begins with d") for text in said(app.success))
    assert not any(each.label == "Show the answer" for each in app.button)


def test_an_order_that_is_no_better_gives_no_proof_away():
    app = order_page(order="0,1,2,3,4,5,6,7")
    assert said(app.info) == ["26 KiB, no lower than greedy. The bound is 16 KiB: Undo, or start again."]
    assert not app.success
    assert 7 not in progress.done()
    click(app, "order_undo")
    assert address(app)["order"] == "0,1,2,3,4,5,6"
    click(app, "order_again")
    assert "order" not in address(app)


def test_what_the_address_says_is_kept_as_far_as_it_can_run():
    app = order_page(order="0,1,7,2")
    assert said(app.warning) == ["order: found '7', expected an op that is ready then."]
    assert chips_of(app)[1] == "live now 14 KiB"
    assert said(order_page(order="0,0").warning)
    assert said(order_page(order="<b>").warning)


def test_greedy_is_predicted_op_by_op_and_a_wrong_guess_is_told_why():
    app = order_page(mode="order_guess")
    click(app, "guess_0")
    told = "No: a makes a new peak of 8 KiB, and another makes a lower one. Try again."
    assert said(app.warning) == [told]
    assert "step" not in address(app)
    click(app, "guess_3")
    assert said(app.success) == ["Yes: d."]
    assert address(app)["step"] == "1"
    # d has run: e, 4 KiB, is a new peak, and a smaller one than a.
    click(app, "guess_4")
    assert said(app.success) == ["Yes: e."]
    assert address(app)["step"] == "2"
    assert 7 not in progress.done()
    # Both make 18 KiB and leave them; b is the first.
    app = order_page(mode="order_guess", step="3")
    click(app, "guess_5")
    assert said(app.warning) == ["No: another op is as good as f, and comes first in the graph. Try again."]
    # Within the peak so far what leaves less goes first: only the end has a choice, of none.
    assert list(ready(order_page(mode="order_guess", step="6"), "guess")) == [2]


@pytest.mark.parametrize(("way", "names"), [("order_greedy", "d"), ("order_best", "a")])
def test_the_steps_of_greedy_and_of_the_best_order(way, names):
    app = order_page(mode=way)
    rows = app.dataframe[0].value
    assert rows.iloc[0].tolist()[:2] == ["runs next", names]
    assert set(rows["ready"]) == {"a", "d"}
    app.slider[0].set_value(8)
    check(app.run())
    assert address(app)["step"] == "8"
    peak = {"order_greedy": "24 KiB", "order_best": "16 KiB"}[way]
    assert chips_of(app)[0] == f"peak so far {peak}"


def test_a_large_graph_has_its_steps_and_nothing_to_choose():
    app = order_page(doc="example:gpt2", step="44")
    assert app.session_state["order_way"] == "order_greedy"
    app = order_page(doc="example:gpt2", mode="order_best", step="466")
    assert chips_of(app)[0] == "peak so far 39 MiB"
    assert "39 MiB: no order of these ops has a lower peak, proved by one cut." in said(app.success)


def test_buffers_have_no_order():
    app = upload(open_app("import"), "list.csv", CSV)
    app = open_app("replay", doc=address(app)["doc"], mode="order")
    assert "mode: found 'order', expected replay" in said(app.warning)[0]
