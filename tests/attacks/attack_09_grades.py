"""Attack 9: grades. Did the arm that leads get more graded answers than the other?

If it got over 5% more, runs in a stream are cut to as many: the first part of the longer runs is compared with the
whole of the shorter ones, second half with second half. The claim falls if the lead of the cut runs is not above zero
with its interval. An exam comes after all grades and cannot be cut: there the claim falls at once. Who is not
trained, or learns from gold answers, uses no grades.
"""
import numpy as np

from command import alone
from evidence import Evidence, evidence_of, interval
from evolora.experiments.study_results import crossed
from stated_claims import Claim

MORE = 1.05


def cut_lead(own: Evidence, claim: Claim, share: float) -> np.ndarray: # (seeds, 1)
    "Differences over second halves when the runs of the leader end after this share of them"
    gaps = []
    for seed, cell in own.own(claim, claim.of).items():
        ours = [right for _, right in cell['curve']]
        theirs = [right for _, right in own.own(claim, claim.against)[seed]['curve']]
        ours = ours[:max(2, round(share * len(ours)))]
        gaps.append([np.mean(ours[len(ours) // 2:]) - np.mean(theirs[len(theirs) // 2:])])
    return np.array(gaps)


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if not claim.study or claim.measure: return ''
    own = evidence_of(claim)
    if not own.learns(claim.against) or 'gold' in own.told(claim.against): return ''
    ours, theirs = (own.mean_spent(claim, arm)[1] for arm in (claim.of, claim.against))
    if ours <= MORE * theirs: return ''
    said = f'{claim.of} had {ours:,.0f} graded answers, {claim.against} {theirs:,.0f}'
    if not own.plan.measured.served: return said
    seen = crossed(cut_lead(own, claim, theirs / ours), ['run'])
    return f'{said}; by as many it is {interval(seen)}' if seen.low <= 0 else ''


if __name__ == '__main__': alone(attack)
