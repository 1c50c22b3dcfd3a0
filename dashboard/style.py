"""The little CSS that Streamlit's theme does not cover."""

CSS = """
.block-container { padding-top: 4rem; padding-bottom: 3rem; max-width: 1800px; }
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
"""
