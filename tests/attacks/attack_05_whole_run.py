"""Attack 5: the whole run. Does a lead of second halves hold from the first generation on?

A claim falls if the interval of the lead over whole runs reaches zero, or if the lead is then smaller than what the
study announced as its least. An exam after training has no halves.
"""
from evolora.experiments.study_results import WHOLE
from command import alone
from evidence import evidence_of, interval
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if not claim.study or not evidence_of(claim).plan.measured.served: return ''
    seen = evidence_of(claim).seen(claim, WHOLE).seen
    if seen.low <= 0: return f'over whole runs it is {interval(seen)}'
    if 100 * seen.estimate >= claim.least: return ''
    return f'over whole runs it is {interval(seen)}, and {claim.least:g} points were announced'


if __name__ == '__main__': alone(attack)
