"""Plans as pictures: scene, colours, ticks; SVG, PNG, Plotly; what a window shows."""
