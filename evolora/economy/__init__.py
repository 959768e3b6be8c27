"""energy: prices, costs, seasons, the ledger; the market of beliefs"""
import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
