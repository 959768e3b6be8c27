"Made-up searches with the shape of real ones: four sizes, two seeds, some candidates that fail. Nothing is trained."
import json

import numpy as np

from evolora.attention.search.search import SearchConfig
from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, variant
from evolora.host.mechanisms.program_source import Program
from evolora.attention.scoring.scaling import fit, horizon_correlation, paired_gain, score

FRAMEWORK, SIZES = 'coefficient_dynamics', [28_000, 66_000, 162_000, 342_000]
FAILS = [('invalid', 'causality: y[3] changes with x[4]'), ('timeout', 'expected an end within 60 s, got none'),
         ('diverged', 'loss nan at size 2, seed 1'), ('crashed', 'RuntimeError: shapes do not fit')]
OPERATORS = ['phi', 'eta', 'gate', 'crossover', 'random']
HOSTILE = ['</script><script>alert(1)</script>', '<img src=x onerror=alert(1)>',
           '[x](javascript:alert(1)) | `a` ![b](c)', '\x1b[2J\x1b]0;x\x07', '\u202egpj', '\ud800', 'n' * 5000,
           '```\n</pre># heading\n````\n', '" onmouseover="alert(1)']


def source(i):
    "Another program for each number: the standard variants, then softmax with other scales"
    names = list(VARIANTS[FRAMEWORK])
    if i < len(names): return variant(FRAMEWORK, names[i])
    return FRAMEWORKS[FRAMEWORK].program(VARIANTS[FRAMEWORK]['softmax'].replace('-.5', f'-.{500 + i}'))


def losses(rng, *, seeds=2, better=0., steeper=0., own=.004):
    "(sizes, seeds) of losses; who draws with the same generator has the same seeds"
    size = np.log(np.array(SIZES) / 1e5)[:, None]
    shared = rng.normal(0, .015, (4, seeds))
    return 2.6 - .06 * size + shared - better - steeper * size, rng.normal(0, own, (4, seeds))


def measured(base, table, *, tier='small'):
    "What an evaluation computes from a table of losses"
    gain, line = paired_gain(base, table), fit(SIZES, table)
    scores = {'paired_gain': score(gain), 'slope': score(line, 'slope'), 'slope_lcb': score(line, 'slope_lcb')}
    rng = np.random.default_rng(int(table.sum() * 1e6))
    half = table + .25 + rng.normal(0, .025) + rng.normal(0, .01, table.shape)
    work = float(1 + np.round(2 * rng.random(), 2)) if gain.gain else 1.
    return dict(
        rung=tier, parameters=SIZES, flops=[s * 4000. * work for s in SIZES], seconds=12.5,
        losses={'0.5': half.tolist(), '1.0': table.tolist()}, text=table.tolist(), recall=table.tolist(),
        gain=dict(gain=gain.gain, low=gain.interval.low, high=gain.interval.high, relative=gain.relative,
                  seed_low=gain.by_seed.low, seed_high=gain.by_seed.high, verdict=gain.verdict,
                  sizes=list(gain.sizes)),
        fit=dict(slope=line.slope, low=line.interval.low, high=line.interval.high, intercept=line.intercept,
                 r2=line.r2, lack_of_fit=line.lack_of_fit, method=line.method, reference=line.reference,
                 size=line.size),
        scores=scores)


def empty(index, operator='start', parents=()):
    return dict(index=index, operator=operator, parents=list(parents), source=source(index), notes={},
                digest=Program(source(index)).digest, status='ok', why='', description={}, cell=[], dropped={},
                score=None, measured={})


def rows(n=36, *, seed=0, kind='paired_gain', fails=.2, control=False):
    "The history of n candidates after a baseline; children are near their parents, if they look at them"
    rng, found, worth = np.random.default_rng(seed), [], {}
    base, noise = losses(np.random.default_rng(1))
    base = base + noise
    for i in range(n + 1):
        alive = sorted(worth, key=worth.get)[-5:] or [0]
        drawn = rng.choice(alive, size=min(len(alive), 1 + i % 2), replace=False)
        parents = [] if control or not i else [int(p) for p in drawn]
        row = empty(i, OPERATORS[int(rng.integers(4))] if parents else 'random' if i else 'start', parents)
        dropped = {f'{OPERATORS[i % 5]}: repeated': 1 + i % 3, f'{OPERATORS[i % 4]}: too close': 1}
        row['dropped'] = dropped if i else {}
        if i and rng.random() < fails:
            row['status'], row['why'] = FAILS[int(rng.integers(len(FAILS)))]
            found.append(row)
            continue
        start = max([worth[p] for p in parents if p in worth], default=-.03)
        better = 0. if not i else float(start + rng.normal(-.006 - max(start, 0.) / 8, .014))
        table, own = losses(np.random.default_rng(1), better=better, steeper=float(rng.normal(0, .004)) * bool(i))
        table = table + (rng.normal(0, .004, table.shape) if i else own)
        row['measured'], worth[i] = measured(base, table), better
        row['score'] = row['measured']['scores'][kind]
        lookback, rank = rng.random(2)
        row['description'] = dict(entropy=float(rng.random()), lookback=lookback, rank=rank)
        row['cell'] = [int(lookback * 5), int(rank * 5)]
        found.append(row)
    return found


def findings(history, *, seeds=(101, 102, 103), true=.015):
    "What rescoring a history finds; the winners are a little better, and the controls are bad"
    def draw(better, steeper=0., own=0):
        table, _ = losses(np.random.default_rng(9), seeds=len(seeds), better=better, steeper=steeper)
        return table + np.random.default_rng(own).normal(0, .004, table.shape)
    base = draw(0., own=50)
    best = sorted((r for r in history[1:] if r['status'] == 'ok'), key=lambda r: -r['score'])[:3]
    winners = [dict(index=row['index'], digest=row['digest'],
                    **measured(base, draw(true - .008 * n, own=n), tier='seed')) for n, row in enumerate(best)]
    handicapped = draw(0., own=60) + np.array([.5, .35, .15, 0.])[:, None]
    controls = {'mean': measured(base, draw(-.15, own=61), tier='seed'),
                'handicapped': measured(base, handicapped, tier='seed')}
    gain = lambda better, own: measured(base, draw(better, own=own))['gain']
    ablation = [dict(component='phi', reverted='exp', status='measured', gain=gain(.012, 70)),
                dict(component='gate', reverted='none', status='measured', gain=gain(.001, 71)),
                dict(component='eta', reverted='sum', status='inert', gain=None),
                dict(component='evolve', reverted='identity', status='fails', gain=None)]
    ensemble = [dict(k=k, loss=2.60 - .05 * (1 - 1 / k), mean_member=2.60 + .004 * k, best_member=2.60,
                     baselines=2.615 - .045 * (1 - 1 / k)) for k in (1, 2, 3)]
    valid = [row['measured']['losses'] for row in history if row['status'] == 'ok']
    order = horizon_correlation(*([np.mean(found[at]) for found in valid] for at in ('0.5', '1.0')))
    return dict(tier='seed', seeds=list(seeds), winners=winners, baseline=measured(base, base, tier='seed'),
                controls=controls, ablation=ablation, ensemble=ensemble,
                horizon=dict(value=order.estimate, low=order.low, high=order.high, n=len(valid)))


def write_search(folder, history=None, *, found=None, end='the budget of 36 candidates is spent', facts=None, **config):
    "The folder of a made-up search"
    history = rows() if history is None else history
    folder.mkdir(parents=True)
    config = SearchConfig(framework=FRAMEWORK, **{'budget': max(1, len(history) - 1)} | config).model_dump()
    known = {'version': 4, 'torch': '2.13.0', 'tier': {'steps': 300, 'seeds': [1, 2]}, 'corpus': 'standard library'}
    facts = known | (facts or {})
    (folder / 'search.json').write_text(json.dumps({'config': config, 'facts': facts}))
    (folder / 'history.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in history))
    if end is not None: (folder / 'end.json').write_text(json.dumps({'reason': end, 'candidates': len(history) - 1}))
    if found is not None: (folder / 'findings.json').write_text(json.dumps(found))
    return folder


def hostile(n=24):
    "A history and findings in which every text tries something"
    history = rows(n)
    for i, row in enumerate(history):
        text = HOSTILE[i % len(HOSTILE)]
        row['operator'], row['why'] = text, text
        row['source'] = row['source'] + f'# {text}'
        row['dropped'] = {f'{text}: repeated': 2}
        row['notes'] = {text: text}
        if row['status'] != 'ok': row['status'] = text[:60]
    found = findings(history)
    found['tier'] = HOSTILE[0]
    found['controls'] = {HOSTILE[1]: found['controls']['mean'], HOSTILE[2]: found['controls']['handicapped']}
    for i, part in enumerate(found['ablation']):
        part |= {'component': HOSTILE[i][:400], 'reverted': HOSTILE[(6, 7, 8, 2)[i]]}
    return history, found


def write_hostile(folder):
    "The folder of a search whose texts try everything"
    history, found = hostile()
    return write_search(folder, history, found=found, end=HOSTILE[0] + HOSTILE[2], facts={HOSTILE[1]: HOSTILE[2]})


