"""The tests, in folders as the rooms that they test stand; `support` is what several of them use."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
