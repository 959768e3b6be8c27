"""Attack 7: before any change. Is the lead there in the first period, with nothing to remember?

A claim falls if half of its lead or more is there by then. It says nothing where no change comes within a run.
"""
from command import alone
from evidence import evidence_of, points
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if not claim.study or not evidence_of(claim).first_period(claim): return ''
    own = evidence_of(claim)
    before, after = own.before_change(claim), own.seen(claim).seen.estimate
    if before <= 0 or before < after / 2: return ''
    return f'of {points(after)} points {points(before)} are there in the first {own.first_period(claim)} generations'


if __name__ == '__main__': alone(attack)
