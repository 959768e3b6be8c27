"""evolora grows an ecology of tiny LoRA adapters (organelles) on one frozen language model (the host).

Importing it is instant: names are fetched when they are first used. `evolora.<Tab>` shows the nouns of a first
afternoon, and the rooms that the rest lives in.
"""
import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
