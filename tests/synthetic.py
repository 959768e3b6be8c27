"A made-up run with the shape of a real one: 30 generations, 16 organelles, 12 cells, one seed. It needs no model."
from dataclasses import replace

import numpy as np
import pandas as pd

from evolora.ecology.record import Generation
from evolora.assimilation.gates import event, judge, tally, turn
from evolora.ecology.run_folder import TABLES, Run

CELLS = [(family, depth) for family in ('code.format', 'logic.bool', 'math', 'string.sort') for depth in (1, 2, 3)]


def write_run(folder, *, generations=30, size=16, tries=6, seed=0):
    "The folder of a made-up run"
    run = Run.create(folder, config={'population': size, 'ticket': .6}, hashes={'tasks': 'a' * 64},
                     host={'id': 'synthetic'}, seed=seed, version='0.1.0')
    for record in records(generations=generations, size=size, tries=tries, seed=seed): run.record(record)
    return run


def lived_again(data, times):
    "The tables of a life that is lived so many times, each time by others, when those before have died"
    span, alive = len(data.generations), set(data.lineage['organelle'])
    alive -= set(data.lineage.loc[data.lineage['event'] == 'death', 'organelle'])
    births = data.lineage[data.lineage['organelle'].isin(alive)].drop_duplicates('organelle')
    deaths = births.assign(generation=span - 1, event='death', reason='bankrupt')
    data = replace(data, lineage=pd.concat([data.lineage, deaths]))

    def again(frame, i):
        new = {'generation': frame['generation'] + i * span}
        if 'organelle' in frame: new['organelle'] = frame['organelle'] + f'.{i}'
        for name in {'parents', 'partners'} & set(frame):
            new[name] = frame[name].map(lambda others: [f'{other}.{i}' for other in others])
        return frame.assign(**new)

    return replace(data, **{table: pd.concat([again(getattr(data, table), i) for i in range(times)],
                                             ignore_index=True) for table in TABLES})


def attempt(generation, first, second, child, rng):
    "A tested child: given up, merged, or put on probation"
    wins, losses = (int(n) for n in rng.multinomial(96, [.25, .15, .6])[:2])
    numbers = dict(best=second, uplift=(wins - losses) / 96, pairs=96, wins=wins, losses=losses,
                   e=2. ** (wins - losses), outlook=.5 if wins > losses else .01, energy_kept=.9)
    how = dict(partners=[second])
    steps = [judge('low_power', first, generation, uplift=.1, level=.02, pairs=96, power=.6, least=.5, **how),
             judge('canary_failed', first, generation, kept=1., least=.75, **how),
             judge('uplift_below_threshold', first, generation, futility=.05, **numbers, **how)]
    if not steps[-1].passed: return turn(steps)
    steps.append(judge('gate_check_failed', first, generation, needed=256., **numbers, **how))
    if steps[-1].passed: steps.append(event('merged', first, generation, child=child, **numbers, **how))
    elif wins - losses > 4: steps[-1:] = [event('trial_created', first, generation, child=child, **numbers, **how)]
    return turn(steps)


def records(*, generations=30, size=16, tries=6, seed=0):
    "Organelles have a skill per cell; the poorest die, the richest have children whose skills differ a little"
    rng, draws = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    ease = np.array([.5 - .12 * depth for _, depth in CELLS])
    skill, energy, parents, operator, count = {}, {}, {}, {}, 0
    prices = np.ones(len(CELLS))

    def born(generation, of=()):
        nonlocal count
        count += 1
        name = f'o{count}'
        start = np.mean([skill[parent] for parent in of], axis=0) if of else ease
        skill[name] = np.clip(start + rng.normal(.015 if of else 0, .07, len(CELLS)), .01, .97)
        energy[name], parents[name] = 3., list(of)
        operator[name] = ('founder', 'mutation', 'crossover')[len(of)]
        lineage.append(dict(generation=generation, event='birth', organelle=name, parents=list(of),
                            operator=operator[name], rank=4, reason=None,
                            traits={'explore': .2, 'appetite': 1., 'selectivity': 2., 'step': .1,
                                    'niche': '', 'plasticity': 1.}))
        ledger.append(entry(generation, name, *(('nursery', 'birth') if of else ('genesis', 'founder')), 3.))

    def entry(generation, name, account, reason, amount):
        return dict(generation=generation, organelle=name, account=account, reason=reason, amount=amount,
                    balance=energy[name])

    for generation in range(generations):
        lineage, ledger, episodes = [], [], []
        if not generation:
            for _ in range(size): born(0)
        for name in list(skill):
            paid = min(.6, energy[name])
            energy[name] -= paid
            ledger.append(entry(generation, name, 'commons', 'ticket', -paid))
            for cell in rng.choice(len(CELLS), tries, replace=False):
                success, parsed = bool(rng.random() < skill[name][cell]), bool(rng.random() < .97)
                success, cost = success and parsed, .25 + .05 * rng.random()
                revenue = prices[cell] * success
                episodes.append(dict(
                    generation=generation, organelle=name, family=CELLS[cell][0], depth=CELLS[cell][1], difficulty=.5,
                    task=f'{rng.integers(2 ** 62):016x}', parsed=parsed, progress=1. if success else .3 * parsed,
                    success=success, answer=str(rng.integers(100)), prompt_tokens=int(rng.integers(15, 40)),
                    new_tokens=int(rng.integers(1, 9)), gflops=.05, cost=cost, price=prices[cell],
                    reward=float(success), revenue=revenue, penalty=0.))
            mine = episodes[-tries:]
            for account, reason, sign in (('market', 'revenue', 1), ('compute', 'cost', -1)):
                amount = sign * sum(row[reason] for row in mine)
                energy[name] += amount
                ledger.append(entry(generation, name, account, reason, amount))
            for account, reason, change in (('overflow', 'cap', min(0., 10. - energy[name])),
                                            ('relief', 'forgiven', max(0., -energy[name]))):
                if change:
                    energy[name] += change
                    ledger.append(entry(generation, name, account, reason, change))
        dead = sorted((name for name in skill if energy[name] < .5), key=energy.get)[:3] if generation else []
        for name in dead:
            ledger.append(dict(generation=generation, organelle=name, account='estate', reason='estate',
                               amount=-energy[name], balance=0.))
            lineage.append(dict(generation=generation, event='death', organelle=name, parents=parents[name],
                                operator=None, rank=4, traits=None, reason='bankrupt'))
            del skill[name], energy[name]
        births = 0
        while len(skill) < size and births < 2:
            rich = sorted(skill, key=energy.get, reverse=True)[:4]
            born(generation, tuple(rng.choice(rich, 2 if rng.random() < .3 else 1, replace=False).tolist()))
            births += 1
        right, cost, revenue = (float(sum(row[key] for row in episodes)) for key in ('success', 'cost', 'revenue'))
        by_cell = {cell: [row['success'] for row in episodes if (row['family'], row['depth']) == cell]
                   for cell in CELLS}
        prices = np.array([np.clip(1. + .8 * (.5 - np.mean(by_cell[cell] or [.5])), .6, 1.6) for cell in CELLS])
        turns = [turn([judge('cooldown', name, generation, since=int(draws.integers(8)), wait=4)]) for name in skill]
        if generation % 5 == 4 and len(skill) > 1:
            turns[0] = attempt(generation, *list(skill)[:2], f'm{generation}', draws)
        decisions = [decision for steps in turns for decision in steps]
        best = max(skill, key=lambda name: skill[name].mean())
        row = dict(
            generation=generation, season='winter' if generation % 10 == 9 else 'summer', alive=len(skill),
            births=births or (size if not generation else 0), deaths=len(dead), episodes=len(episodes),
            accuracy=right / len(episodes), parse_rate=.97, progress=right / len(episodes), roi=revenue / cost,
            revenue=revenue, penalty=0., cost=cost, net=revenue - cost, energy=float(sum(energy.values())),
            energy_gini=.2, effective_population=12., best=best, best_fitness=float(skill[best].mean()), lp_mix=.5,
            reliability=.4, kl_from_host=.01 * generation, kl_limited=0, gflops={'play': 20., 'learn': 40.},
            gate_answers=0, gate_right=0, gate_tokens=0, floor=1., roi_gate=1., gates=dict(tally(decisions), paid=size),
            cells={f'{family}:{depth}': dict(episodes=len(tried), accuracy=float(np.mean(tried)) if tried else None,
                                             success_ema=.3, learning_progress=.01, price=float(price))
                   for ((family, depth), tried), price in zip(by_cell.items(), prices)})
        timing = dict(generation=generation, seconds=1., parts={'play': .9, 'settle': .1})
        yield Generation(row, episodes, ledger, lineage, timing, decisions)
