"""Attack 10: many tests. Is the lead significant once all announced comparisons of its study are counted?

A claim falls if Holm's p is .05 or more. A lead that was not announced joins the announced ones, tested in both
directions.
"""
from command import alone
from evidence import evidence_of
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if not claim.study: return ''
    p = evidence_of(claim).corrected(claim)
    return f"Holm's p is {p:.3f}" if p >= .05 else ''


if __name__ == '__main__': alone(attack)
