"""Whether a rival that a study left out is ahead of the rival that a claim names."""
from evidence import common, committed, evidence_of, of_curves
from rivals import Rival, kept, runs_of
from stated_claims import Claim

PARTS = {'second': 'second half', 'whole': 'whole run'}


def same_world(claim: Claim, run: dict) -> bool:
    "Whether a run of a rival was in the world of a claim: the same settings and host, of whatever study"
    own, other = evidence_of(claim), committed(run['study'])
    world, host, _ = own.place(claim)
    return (own.plan.world(world).config() == other.plan.world(run['world']).config() and host == other.plan.hosts[0])


def runs_against(claim: Claim, rival: Rival) -> dict[int, dict]: # by seed
    "The runs of a rival in the world of a claim; none if it was not run there"
    there = {(run['study'], run['world']) for run in kept() if run['arm'] == rival.arm and same_world(claim, run)}
    return {seed: run for place in sorted(there) for seed, run in runs_of(rival, *place).items()}


def of_runs(runs: dict[int, dict], part: str) -> dict[int, float]: # by seed
    "Accuracy of a rival's runs, over a part of them"
    return {seed: sum(half) / len(half) for seed, run in runs.items()
            for half in [run['right'] if part == 'whole' else run['right'][len(run['right']) // 2:]]}


def ahead_of_the_rival(claim: Claim, runs: dict[int, dict], name: str, margin: float = 0.) -> str:
    """The numbers, if these runs are right more often than the rival of the claim

    On the seeds that both have; on all of each where a study had other seeds.
    """
    cells = evidence_of(claim).own(claim, claim.against)
    for part, words in PARTS.items():
        ours, theirs, seeds = common(of_runs(runs, part), of_curves(cells, part))
        numbers = f'{name} has {ours:.1%} and {claim.against} {theirs:.1%}'
        if seeds and ours > theirs + margin: return f'{numbers} in the {words}, seeds {", ".join(map(str, seeds))}'
    return ''
