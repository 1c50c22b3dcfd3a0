"""The dashboard: pages and navigation only."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import streamlit as st
from memplan_dashboard.session import state

HERE = Path(__file__).parent
# As text: Streamlit opens an image of a file anew with every click.
ICON = "data:image/png;base64," + b64encode((HERE / "icon.png").read_bytes()).decode()
before = st.session_state.get("title", "memplan")
st.set_page_config(page_title=before, page_icon=ICON, layout="wide")
st.html(HERE / "style.css")
# Before the navigation, which then takes the choices along into the address of another page.
state.restore()
state.start_compiling()

page = st.navigation(
    [
        st.Page("views/inspect/inspect_page.py", title="Inspect", icon=":material/view_quilt:", default=True),
        st.Page("views/fit/fit_page.py", title="Fit", icon=":material/compress:", url_path="fit"),
        st.Page(
            "views/devices/devices_page.py", title="Devices", icon=":material/memory:", url_path="devices"
        ),
        st.Page(
            "views/pipeline/pipeline_page.py",
            title="Pipeline",
            icon=":material/view_timeline:",
            url_path="pipeline",
        ),
        st.Page("views/compare_plans.py", title="Compare", icon=":material/compare:", url_path="compare"),
        st.Page("views/diff/diff_page.py", title="Diff", icon=":material/difference:", url_path="diff"),
        st.Page(
            "views/history/history_page.py", title="History", icon=":material/timeline:", url_path="history"
        ),
        st.Page("views/zoo/zoo_page.py", title="Zoo", icon=":material/grid_on:", url_path="zoo"),
        st.Page("views/replay_strategy.py", title="Replay", icon=":material/replay:", url_path="replay"),
        st.Page("views/run/run_page.py", title="Run", icon=":material/play_arrow:", url_path="run"),
        st.Page("views/learn.py", title="Learn", icon=":material/school:", url_path="learn"),
        st.Page("views/import_file.py", title="Import", icon=":material/upload_file:", url_path="import"),
    ],
    position="top",
)
page.run()
st.session_state.title = state.title(page.title)
st.set_page_config(page_title=st.session_state.title)
state.set_aside()
