"""evolora grows an ecology of tiny LoRA adapters (organelles) on one frozen language model (the host).

Nothing is imported here, so that `import evolora` is instant: import what you need from its module, for
example `from evolora.ecology import Ecology`. The modules are listed, in reading order, in the README.
"""
__version__ = "0.1.0"
