"""Attack 8: compute. Did the arm that leads spend more than the other, scoring included?

A claim falls if it spent over 5% more GFLOPs. An arm that is not trained cannot spend more: to be ahead of it is what
training is for, and the claim says so.
"""
from command import alone
from evidence import evidence_of
from stated_claims import Claim

MORE = 1.05


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if not claim.study or not evidence_of(claim).learns(claim.against): return ''
    ours, theirs = (evidence_of(claim).mean_spent(claim, arm)[0] for arm in (claim.of, claim.against))
    return f'{claim.of} spent {ours:,.0f} GFLOPs, {claim.against} {theirs:,.0f}' if ours > MORE * theirs else ''


if __name__ == '__main__': alone(attack)
