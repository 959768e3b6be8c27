"""Attack 1: the base model, never trained, that is shown the latest right answer of the family.

The example is dropped after four wrong answers. Where the right answer changes, this rival needs no training to
follow. A lead over another arm in such a world falls if this rival does better than the arm that the claim names, for
then the claim names the wrong rival. It also falls if this rival was never run in that world. What a part does inside
one arm is no lead over a rival, and in a world that never changes there is nothing to follow.
"""
from command import alone
from evidence import evidence_of
from missing import ahead_of_the_rival, runs_against
from rivals import FROZEN
from stated_claims import Claim


def attack(claim: Claim) -> str:
    "The numbers by which the claim falls, or ''"
    if claim.part or not claim.study or not evidence_of(claim).changes(claim): return ''
    runs = runs_against(claim, FROZEN)
    if not runs: return 'the base model with memory was never run in this world'
    return ahead_of_the_rival(claim, runs, 'the base model with memory')


if __name__ == '__main__': alone(attack, FROZEN)
