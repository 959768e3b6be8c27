"A made-up run with the shape of a real one: 30 generations, 16 organelles, 12 cells, one seed. It needs no model."
from dataclasses import replace

import numpy as np
import pandas as pd

from evolora.assimilation.gates import event, judge, tally, turn
from evolora.ecology.price_equation import Descent, price_terms
from evolora.ecology.record import Generation
from evolora.ecology.run_folder import TABLES, Run
from evolora.economy.market import Market, MarketConfig
from evolora.economy.prices import effective_population, gini

CELLS = [(family, depth) for family in ('code.format', 'logic.bool', 'math', 'string.sort') for depth in (1, 2, 3)]
FAMILIES = tuple(dict.fromkeys(family for family, _ in CELLS))
EVERY = 3       # generations from census to census


def write_run(folder, *, generations=30, size=16, tries=6, seed=0):
    "The folder of a made-up run"
    run = Run.create(folder, config={'population': size}, hashes={'tasks': 'a' * 64}, host={'id': 'synthetic'},
                     seed=seed, version='0.1.0')
    for record in records(generations=generations, size=size, tries=tries, seed=seed): run.record(record)
    return run


def lived_again(data, times):
    "The tables of a life that is lived so many times, each time by others, when those before have died"
    span, alive = len(data.generations), set(data.lineage['organelle'])
    alive -= set(data.lineage.loc[data.lineage['event'] == 'death', 'organelle'])
    births = data.lineage[data.lineage['organelle'].isin(alive)].drop_duplicates('organelle')
    deaths = births.assign(generation=span - 1, event='death', reason='drawn by lot')
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
    "A tested child: it takes over, or it was not shown to be as good"
    e = float(10 ** rng.uniform(-1, 4))
    numbers = dict(family='math', e=e, needed=256., uplift=float(rng.normal(0, .03)), pairs=96)
    steps = [judge('no_pair', first, generation, pairs=2, least=1),
             judge('low_compute', first, generation, purse=30., least=12.),
             judge('child_unlikely', first, generation, partners=[second], lag=.02, most=.1),
             judge('not_shown_equal', first, generation, partners=[second], **numbers)]
    if steps[-1].passed:
        steps.append(event('took_over', first, generation, partners=[second], child=child, energy_kept=.9, **numbers))
    return turn(steps)


def refused(generation, nominee, partner):
    "A turn that ends before a child is tested, each time at another gate"
    steps = [judge('no_pair', nominee, generation, pairs=generation % 4, least=1),
             judge('low_compute', nominee, generation, purse=3. * (generation % 3), least=4.),
             judge('child_unlikely', nominee, generation, partners=[partner], lag=.2, most=.1)]
    passed = [step.passed for step in steps]
    return turn(steps[:passed.index(False) + 1])


def records(*, generations=30, size=16, tries=6, seed=0):
    "Organelles have a skill per cell that rises; stakes move by likelihood; few leave, and recruits or children come"
    rng, draws = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    ease = np.array([.5 - .12 * depth for _, depth in CELLS])
    skill, parents, operator, census, count = {}, {}, {}, {}, 0
    market, lineage = Market(MarketConfig(books='all'), FAMILIES), []

    def born(generation, how, of=()):
        nonlocal count
        count += 1
        name = f'o{count}'
        start = np.mean([skill[parent] for parent in of], axis=0) if of else ease
        skill[name] = np.clip(start + rng.normal(.015 if of else 0, .07, len(CELLS)), .01, .97)
        operator[name], parents[name] = how, list(of)
        market.welcome(name, () if how == 'merge' else of)
        reason = how if how in ('founder', 'recruit') else 'birth'
        lineage.append(dict(generation=generation, event='birth', organelle=name, parents=list(of), operator=how,
                            rank=4, reason=reason, traits={'step': .1, 'plasticity': 1., 'niche': ''}))
        return name

    def dead(generation, name, reason):
        market.leave(name)
        lineage.append(dict(generation=generation, event='death', organelle=name, parents=parents[name],
                            operator=operator[name], rank=4, traits={'step': .1, 'plasticity': 1., 'niche': ''},
                            reason=reason))
        del skill[name]

    def turnover(generation):
        "The account of a census, as `Succession` writes it; nothing at the first"
        nonlocal census
        before, census = census, {name: float(x.mean()) for name, x in skill.items()}
        if not before: return []
        new = [name for name in skill if name not in before]
        came = {name: Descent(tuple(p for p in parents[name] if p in before),
                              'merge' if operator[name] == 'merge' else 'birth') for name in new}
        mean = lambda values: float(np.mean([*values.values()]))
        children = {name: dict(parent=parents[name][0], parent_skill=before[parents[name][0]], child_skill=census[name],
                               differs=.05, luck=.0001,
                               parent_above=before[parents[name][0]] - mean(before),
                               child_above=census[name] - mean(before))
                    for name in new if parents[name] and parents[name][0] in before}
        return [dict(generation=generation, members=len(census), before=mean(before), after=mean(census),
                     **price_terms(before, census, came)._asdict(), reliability=.6, income=.4, children=children,
                     gflops=1.5)]

    for generation in range(generations):
        episodes, tasks, decisions, lineage, society = [], [], [], [], []
        if not generation:
            for _ in range(size): born(0, 'founder')
        for name in list(skill):
            for cell in rng.choice(len(CELLS), tries, replace=False):
                success, parsed = bool(rng.random() < skill[name][cell]), bool(rng.random() < .97)
                success, cost = success and parsed, .25 + .05 * rng.random()
                tasks.append(dict(generation=generation, question=len(tasks), task=f'{rng.integers(2 ** 62):016x}',
                                  prompt=f'What is {len(tasks)} + 1?', gold=str(len(tasks) + 1)))
                episodes.append(dict(
                    generation=generation, question=tasks[-1]['question'], organelle=name, family=CELLS[cell][0],
                    depth=CELLS[cell][1], difficulty=.5,
                    task=tasks[-1]['task'], parsed=parsed, progress=1. if success else .3 * parsed,
                    success=success, answer=str(rng.integers(100)), prompt_tokens=int(rng.integers(15, 40)),
                    new_tokens=int(rng.integers(1, 9)), gflops=.05, cost=cost, reward=float(success),
                    revenue=float(success), penalty=0.))
            skill[name] = np.clip(skill[name] + .004, .01, .97)
        for cell in rng.choice(len(CELLS), 4, replace=False):
            market.settle(CELLS[cell][0], {name: float(x[cell]) for name, x in skill.items()})
        worst = sorted(skill, key=lambda name: skill[name].mean())
        if size > 3 and generation % 2:
            child = generation % 4 == 3
            where = {'quality': float(skill[worst[0]].mean()), 'a': float(generation % 3), 'b': float(generation % 5)}
            society = [dict(generation=generation, part='archive', event='kept', organelle=worst[0], others=[],
                            numbers=where)]
            least = skill[worst[0]].mean()
            dead(generation, worst[0], f'worth {least:.4f} of a right answer, the least of all' if child
                 else f'its absence costs {least / 10:.4f} of a right answer')
            if not child: born(generation, 'recruit')
            elif rng.random() < .4: born(generation, 'crossover', rng.choice(worst[1:][-4:], 2, replace=False).tolist())
            else: born(generation, 'gaussian', [worst[-1]])
        if size > 3:
            told = lambda part, event, organelle='', others=(), **numbers: society.append(dict(
                generation=generation, part=part, event=event, organelle=organelle, others=list(others),
                numbers=numbers))
            told('allocation', 'sold', worst[-1], ['math'], questions=8., bid=.05, price=.04)
            told('board', 'read', worst[-2], [worst[-1]], messages=3., paid=.003)
            told('board', 'messages', real=9., real_right=5., shuffled=3., shuffled_right=1., none=12., none_right=5.)
        if size > 3 and generation % 5 == 4:
            decisions = attempt(generation, worst[-1], worst[-2], f'o{count + 1}', draws)
            if decisions[-1].gate == 'took_over':
                child = born(generation, 'merge', worst[:-3:-1])
                market.take_over(child, worst[:-3:-1])
                dead(generation, worst[-2], f'{child} answers for it')
        elif size > 3: decisions = refused(generation, worst[-1], worst[-2])
        right, cost, revenue = (float(sum(row[key] for row in episodes)) for key in ('success', 'cost', 'revenue'))
        by_cell = {cell: [row['success'] for row in episodes if (row['family'], row['depth']) == cell]
                   for cell in CELLS}
        births = [row for row in lineage if row['event'] == 'birth' and row['reason'] != 'founder']
        held = market.balances
        row = dict(
            generation=generation, alive=len(skill), births=len(births),
            deaths=sum(row['event'] == 'death' for row in lineage), episodes=len(episodes),
            accuracy=right / len(episodes), parse_rate=.97, progress=right / len(episodes), roi=revenue / cost,
            revenue=revenue, penalty=0., cost=cost, net=revenue - cost, gini=gini(held.values()),
            effective_population=effective_population(held.values()), best=max(held, key=held.get),
            kl_from_host=.01 * generation, kl_limited=0,
            gflops={'play': 20., 'learn': 40., 'gate': float(generation % 5 == 4), 'score': 6., 'alone': 90.},
            gate_answers=0, gate_right=0, gate_tokens=0, gates=dict(sorted(tally(decisions).items())),
            cells={f'{family}:{depth}': dict(episodes=len(tried), accuracy=float(np.mean(tried)) if tried else None,
                                             success_ema=.3, learning_progress=.01)
                   for (family, depth), tried in by_cell.items()})
        evolution = turnover(generation) if generation % EVERY == EVERY - 1 else []
        timing = dict(generation=generation, seconds=1., parts={'serve': .9, 'evolve': .1})
        yield Generation(row, episodes, market.rows(generation), lineage, timing, decisions, evolution=evolution,
                         society=society, tasks=tasks)
