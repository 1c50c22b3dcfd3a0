"""The replay of a strategy on a canvas: stepped, predicted and placed by hand without asking the server.

    message = make_message(trace_json(replay), mode=Mode.REPLAY, step=4, serial=1, color=index, palette=pairs)
    replay_view(message, serial=1, key="replay", on_step=keep)

Plain values in, the step that the reader is at out: every decision and every sentence is the engine's.
"""

from memplan_dashboard.replay_view.component import (
    Mode,
    exercise_values,
    make_message,
    replay_view,
    trace_json,
)

__all__ = ["Mode", "exercise_values", "make_message", "replay_view", "trace_json"]
