"""Attack 12: tuning noise. Is the lead larger than what two tunings of the same arm differ by?

The arm `reset`, tuned twice with eight trials on one seed, had 51.6% in one study and 54.8% in another. A claim falls
if its lead is smaller than three points. Rank correlations are no points.
"""
from command import alone
from evidence import evidence_of, points
from stated_claims import Claim

NOISE = 3.      # points


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if claim.measure: return ''
    lead = 100 * evidence_of(claim).seen(claim).seen.estimate if claim.study else claim.lead
    if lead >= NOISE: return ''
    return f'a lead of {points(lead / 100)} points, and two tunings of one arm differ by {NOISE:g}'


if __name__ == '__main__': alone(attack)
