"""The little CSS that Streamlit's theme does not cover."""

CSS = """
.block-container { padding-top: 4rem; padding-bottom: 3rem; max-width: 1800px; }
[data-testid="stMetricValue"] { font-variant-numeric: tabular-nums; }
.st-key-options, .st-key-run_start, .st-key-swap, .st-key-diff_upload { padding-top: 1.75rem; }
.st-key-figures_diff [data-testid="stMetricValue"] { font-size: 1.75rem; }
div:has(> [class*="st-key-unseen"]) { position: absolute; }
.st-key-details [data-testid="stHorizontalBlock"] { gap: 0 1rem; }
@media (max-width: 1100px) {
  .st-key-controls [data-testid="stHorizontalBlock"],
  .st-key-figures [data-testid="stHorizontalBlock"],
  .st-key-figures_what_if [data-testid="stHorizontalBlock"],
  .st-key-figures_diff [data-testid="stHorizontalBlock"],
  [class*="st-key-halves"] [data-testid="stHorizontalBlock"] { flex-wrap: wrap; }
  .st-key-controls [data-testid="stColumn"] { flex: 1 1 12rem; min-width: 12rem; }
  .st-key-controls [data-testid="stColumn"]:has([data-testid="stMultiSelect"]) { flex-basis: 100%; }
  .st-key-figures [data-testid="stColumn"] { flex: 1 1 10rem; min-width: 10rem; }
  .st-key-figures_what_if [data-testid="stColumn"] { flex: 1 1 18rem; min-width: 18rem; }
  .st-key-figures_diff [data-testid="stColumn"] { flex: 1 1 14rem; min-width: 14rem; }
  .st-key-figures_diff [data-testid="stMetricValue"] { font-size: 1.5rem; }
  .st-key-diff_upload, .st-key-run_start { padding-top: 0; }
  .st-key-controls [data-testid="stColumn"]:has(.st-key-swap) { flex: 0 0 3rem; min-width: 3rem; }
  .st-key-controls [data-testid="stColumn"]:has(.st-key-replay_mode) { flex-basis: 100%; }
  [class*="st-key-halves"] [data-testid="stColumn"] { flex: 1 1 100%; min-width: 100%; }
  [data-testid="stMetricValue"] { font-size: 1.75rem; }
}
"""
