"""Attack 11: few seeds. Are there enough for the interval to be what it says?

A claim falls with fewer than five seeds, or if a 95% interval from so many holds the truth in less than 93% of
studies.
"""
from evolora.experiments.study_coverage import FEWEST, coverage
from command import alone
from evidence import evidence_of
from stated_claims import Claim

LEAST = .93


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    seeds = len(evidence_of(claim).own(claim, claim.of)) if claim.study else claim.seeds
    if seeds >= FEWEST and coverage(seeds) >= LEAST: return ''
    return f"{seeds} seed{'' if seeds == 1 else 's'}, an interval of 95% covers {coverage(max(seeds, 1)):.0%}"


if __name__ == '__main__': alone(attack)
