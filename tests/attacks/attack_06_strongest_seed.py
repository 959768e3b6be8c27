"""Attack 6: leave one seed out. Does the lead need the seed that shows it most?

A claim falls if, without that seed, the interval of the lead reaches zero.
"""
from command import alone
from evidence import evidence_of, interval
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if not claim.study: return ''
    seen = evidence_of(claim).seen(claim)
    if seen.strongest is None: return 'there is one seed only'
    if seen.without.low > 0: return ''
    return f'without seed {seen.strongest} it is {interval(seen.without)}'


if __name__ == '__main__': alone(attack)
