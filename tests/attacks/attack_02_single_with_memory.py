"""Attack 2: one adapter that is shown the latest right answer of the family, and is replaced when its rewards fall.

This is the strongest arm with one adapter that the pilots found (threshold 5, learning rate .01, half-life 300, KL
bound 3). A lead in a world that changes falls if this rival does better than the arm that the claim names, over the
second half or over the whole run, or if it does better than the arm that is said to lead.
"""
from dataclasses import replace

from command import alone
from evidence import evidence_of
from missing import ahead_of_the_rival, runs_against
from rivals import SINGLE
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if claim.part or not claim.study or not evidence_of(claim).changes(claim): return ''
    runs, name = runs_against(claim, SINGLE), 'one adapter with memory and resets'
    leader = replace(claim, of=claim.against, against=claim.of)
    return ahead_of_the_rival(leader, runs, name) or ahead_of_the_rival(claim, runs, name)


if __name__ == '__main__': alone(attack, SINGLE)
