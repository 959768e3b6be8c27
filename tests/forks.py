"""Processes of their own, forked from one that has imported what nearly all of them import, and none of evolora.

A process of tests has one such server, whoever asks first; so what it imports stands in one place.
"""
from multiprocessing import get_context

FORKS = get_context('forkserver')
FORKS.set_forkserver_preload(['torch', 'transformers.models.llama.modeling_llama', 'peft', 'scipy.stats', 'altair',
                              'nbdev.test'])
