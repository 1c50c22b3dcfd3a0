"""What XLA compiled: its scheduled HLO and its buffer assignment, as text or as protocol buffers."""
