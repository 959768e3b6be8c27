import math

import torch
from torch import nn
from torch.nn import functional as F

from evolora.host.mechanisms import CoefficientDynamics, diagonal_scores, plain_scores, reflected_scores, scalar_scores
from evolora.host.mechanisms import ShortConvolution, causal_softmax, cut, decay, past, past_max, rms, unit


class Attention(CoefficientDynamics):
    # EVOLVE-BLOCK-START
    def setup(self):
        self.rate, self.offset = nn.Linear(self.dim, self.heads), nn.Parameter(torch.zeros(self.heads, 1, self.entries))
        self.near_k = ShortConvolution(self.heads, self.entries)
    def prepare(self, q, k, v, x):
        k = self.near_k(k)
        return q, k, v
    def inject(self, k, x): return self.entries**-.5
    def evolve(self, q, k, x): return diagonal_scores(q, k, F.logsigmoid(self.split(self.rate(x)) + self.offset + 4))
    def readout(self, scores): return torch.exp(scores - past_max(scores))
    def normaliser(self, weights, scores): return weights.sum(-1, keepdim=True)
    # EVOLVE-BLOCK-END
