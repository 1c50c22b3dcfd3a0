"""Names in Plotly's texts, and pictures in HTML."""

from __future__ import annotations

import html
from base64 import b64encode


def escape(text: str) -> str:
    """Names are text: Plotly would read tags in them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def picture(svg: str, told: str, kind: str = "rank-curve") -> str:
    """An SVG as an image that says `told` to those who do not see it: Streamlit takes no SVG in its HTML."""
    data = b64encode(svg.encode()).decode()
    return (
        f'<img class="{kind}" alt="{html.escape(told, quote=True)}" src="data:image/svg+xml;base64,{data}">'
    )
