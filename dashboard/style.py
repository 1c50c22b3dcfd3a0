"""The little CSS that Streamlit's theme does not cover."""

CSS = """
.block-container { padding-top: 4rem; padding-bottom: 3rem; max-width: 1800px; }
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
.st-key-options { padding-top: 1.75rem; }
.st-key-details [data-testid="stHorizontalBlock"] { gap: 0 1rem; }
@media (max-width: 1100px) {
  .st-key-controls [data-testid="stHorizontalBlock"],
  .st-key-figures [data-testid="stHorizontalBlock"],
  [class*="st-key-halves"] [data-testid="stHorizontalBlock"] { flex-wrap: wrap; }
  .st-key-controls [data-testid="stColumn"] { flex: 1 1 12rem; min-width: 12rem; }
  .st-key-controls [data-testid="stColumn"]:has([data-testid="stMultiSelect"]) { flex-basis: 100%; }
  .st-key-figures [data-testid="stColumn"] { flex: 1 1 10rem; min-width: 10rem; }
  [class*="st-key-halves"] [data-testid="stColumn"] { flex: 1 1 100%; min-width: 100%; }
  [data-testid="stMetricValue"] { font-size: 1.75rem; }
}
"""
