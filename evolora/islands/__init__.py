"""many ecologies that exchange organelles, in one process or on a Ray cluster"""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
