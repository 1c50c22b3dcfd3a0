"""memplan: plans the memory of neural-network graphs, proves how good the plan is, and shows it.

The public names stand in `__init__.pyi`; each is imported when somebody asks for it, so that `memplan` starts
quickly and a program that only reads a file waits for no other kind of file.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
