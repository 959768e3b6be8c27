"""Attack 4: labels. Is the arm that leads told something that the other is not: the world, the place, gold answers?

A claim falls if so, for the lead then measures the label and the arm together. It also falls if its number is of
another quantity than the sentence names: a rank correlation that arms without merit reach as well is no merit.
"""
from command import alone
from evidence import evidence_of
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The labels by which the claim falls, or ''"
    if not claim.study: return ''
    own = evidence_of(claim)
    if claim.measure:
        seen = own.seen(claim).seen
        return f'without merit it is no lower: {seen.estimate:+.2f}' if seen.estimate <= 0 else ''
    ours, theirs = own.told(claim.of), own.told(claim.against)
    return f'{claim.of} is told: {ours}; {claim.against}: {theirs or "nothing"}' if ours and ours != theirs else ''


if __name__ == '__main__': alone(attack)
