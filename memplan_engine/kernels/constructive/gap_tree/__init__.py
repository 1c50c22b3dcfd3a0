"""Order × fit over a tree of the gaps between rectangles, for many buffers live at once."""
