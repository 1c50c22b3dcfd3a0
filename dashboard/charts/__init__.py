"""Plotly charts, one a file: `data` gives plain values, `figure` draws them."""
