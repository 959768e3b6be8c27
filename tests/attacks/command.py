"""What an attack does when it is run alone: a line per claim; attacks with a rival of their own can run it again."""
import argparse
import sys
from collections.abc import Callable

from rivals import Rival, run_again
from stated_claims import CLAIMS, Claim


def report(attack: Callable[[Claim], str]) -> None:
    "A line per claim: whether it falls, and by which numbers"
    for claim in CLAIMS:
        found = attack(claim)
        print(f"{claim.status:9} {'FALLS' if found else 'holds'}  {claim.text}{f' {found}' if found else ''}")


def alone(attack: Callable[[Claim], str], rival: Rival | None = None) -> None:
    "The command line of one attack"
    parser = argparse.ArgumentParser(description=sys.modules[attack.__module__].__doc__.partition('\n')[0])
    if rival is not None:
        parser.add_argument('--seeds', type=int, nargs='+', default=[], help='run the rival on these, minutes each')
        parser.add_argument('--study', default='worlds', help='in whose world')
        parser.add_argument('--world', default='recurring', help='which world of it')
        parser.add_argument('--write', action='store_true', help='keep what it answered in rivals.json')
    given = parser.parse_args()
    if rival is not None and given.seeds: run_again(rival, given.seeds, given.write, given.study, given.world)
    report(attack)
