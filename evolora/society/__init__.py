"""what plugs into the loop: an archive, other plans of who answers, a guard of diversity"""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
