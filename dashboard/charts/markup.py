"""Names in Plotly's texts."""


def escape(text: str) -> str:
    """Names are text: Plotly would read tags in them."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
