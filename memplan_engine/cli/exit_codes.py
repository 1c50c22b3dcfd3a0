"""Exit codes that more than one file knows."""

from __future__ import annotations

INTERRUPTED = 130
"""Ended by Ctrl-C: 128 and the number of SIGINT, as shells count."""
