"""All twelve attacks on all claims, as a table: python tests/attacks/run.py"""
from importlib import import_module
from pathlib import Path

from stated_claims import CLAIMS, Claim

ATTACKS = {int(path.stem.split('_')[1]): import_module(path.stem).attack
           for path in sorted(Path(__file__).parent.glob('attack_*.py'))}


def falls(claim: Claim) -> dict[int, str]: # by the number of the attack
    "The attacks to which a claim falls, each with its numbers"
    found = {number: attack(claim) for number, attack in ATTACKS.items()}
    return {number: words for number, words in found.items() if words}


def main() -> None:
    "Print the table; exit code 1 if a claim falls to an attack that its page does not concede"
    wrong = 0
    for claim in CLAIMS:
        found = falls(claim)
        open_ones = [n for n in found if claim.status != 'withdrawn' and n not in claim.concedes]
        wrong += bool(open_ones)
        print(f"{'WRONG ' if open_ones else ''}{claim.status:9} {claim.text}")
        for number, words in found.items(): print(f'    {number:2}  {words}')
    print(f'{len(CLAIMS)} claims, {len(ATTACKS)} attacks; {wrong} claims fall that should stand')
    raise SystemExit(bool(wrong))


if __name__ == '__main__': main()
