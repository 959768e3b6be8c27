"""Attack 3: the detector of the rival with other settings from the ranges that were searched.

A detector that misses a change keeps an arm wrong. A lead over an arm with a detector falls if the same arm with
threshold 3 and slack .05 has three points more than the arm had in the study, on the same seeds. It says nothing
where it was not run.
"""
from command import alone
from evidence import evidence_of
from missing import ahead_of_the_rival, runs_against
from rivals import TUNED
from stated_claims import Claim

DETECTORS = ('reset', 'reptile', 'changepoint')
NOISE = .03     # between two tunings of the same arm


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if claim.part or not claim.study or evidence_of(claim).serving(claim.against) not in DETECTORS: return ''
    return ahead_of_the_rival(claim, runs_against(claim, TUNED), 'the same arm with threshold 3 and slack .05', NOISE)


if __name__ == '__main__': alone(attack, TUNED)
