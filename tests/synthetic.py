"A made-up run with the shape of a real one: 30 generations, 16 organelles, 12 cells, one seed. It needs no model."
import numpy as np

from evolora.runs import Run

CELLS = [(family, depth) for family in ('code.format', 'logic.bool', 'math', 'string.sort') for depth in (1, 2, 3)]


def write_run(folder, *, generations=30, size=16, tries=6, seed=0):
    "Organelles have a skill per cell; the poorest die, the richest have children whose skills differ a little"
    rng = np.random.default_rng(seed)
    run = Run.create(folder, config={'population': size, 'ticket': .6}, hashes={'tasks': 'a' * 64},
                     host={'id': 'synthetic'}, seed=seed, version='0.1.0')
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
        ledger.append(entry(generation, name, 'genesis' if not of else 'nursery', operator[name], 3.))

    def entry(generation, name, account, reason, amount):
        return dict(generation=generation, organelle=name, account=account, reason=reason, amount=amount,
                    balance=energy[name])

    for generation in range(generations):
        lineage, ledger, episodes = [], [], []
        if not generation:
            for _ in range(size): born(0)
        for name in list(skill):
            energy[name] = max(0., energy[name] - .6)
            ledger.append(entry(generation, name, 'commons', 'ticket', -.6))
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
            gain = sum(row['revenue'] - row['cost'] for row in mine)
            energy[name] = float(np.clip(energy[name] + gain, 0, 10))
            ledger.append(entry(generation, name, 'market', 'revenue', gain))
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
        run.append('episodes', episodes)
        run.append('ledger', ledger)
        run.append('lineage', lineage)
        best = max(skill, key=lambda name: skill[name].mean())
        run.append('generations', [dict(
            generation=generation, season='winter' if generation % 10 == 9 else 'summer', alive=len(skill),
            births=births or (size if not generation else 0), deaths=len(dead), episodes=len(episodes),
            accuracy=right / len(episodes), parse_rate=.97, progress=right / len(episodes), roi=revenue / cost,
            revenue=revenue, penalty=0., cost=cost, net=revenue - cost, energy=float(sum(energy.values())),
            energy_gini=.2, effective_population=12., best=best, best_fitness=float(skill[best].mean()), lp_mix=.5,
            reliability=.4, drift=.01 * generation, leashed=0, gflops={'play': 20., 'learn': 40.},
            gate_answers=0, gate_right=0, gate_tokens=0, floor=1., roi_gate=1., gates={'tickets': 16},
            cells={f'{family}:{depth}': dict(episodes=len(tried), accuracy=float(np.mean(tried)) if tried else None,
                                             success_ema=.3, learning_progress=.01, price=float(price))
                   for ((family, depth), tried), price in zip(by_cell.items(), prices)})])
        run.append('timings', [dict(generation=generation, seconds=1., parts={'play': .9, 'settle': .1})])
    return run
