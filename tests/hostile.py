"A run whose names and answers try everything."
import json

from synthetic import write_run

SCRIPT = '</script><script>alert(1)</script><img src=x onerror=alert(1)>'
ESCAPE, BIDI = '\x1b[2J\x1b]0;x\x07', '\u202egpj'
ANSWERS = [SCRIPT, ESCAPE, BIDI, '<svg onload=alert(1)>', 'line\u2028break', '" onmouseover="alert(1)', 'x' * 1_000_000]
NAMES = {'o1': SCRIPT, 'o2': ESCAPE + BIDI, 'o3': 'n' * 5000}
FAMILIES = {'math': SCRIPT + '\n' + ESCAPE, 'string.sort': BIDI, 'logic.bool': 'f' * 10_000}


def write_hostile(folder, *, generations=6):
    "Organelles with hostile names give hostile answers, in a folder with a hostile name"
    run = write_run(folder, generations=generations, size=6, tries=3)
    for table in ('episodes', 'tasks', 'ledger', 'lineage', 'generations'):
        rows = [json.loads(line) for line in run.path(table).read_text().splitlines()]
        for i, row in enumerate(rows):
            for key in ('organelle', 'best'):
                if row.get(key) in NAMES: row[key] = NAMES[row[key]]
            if 'parents' in row: row['parents'] = [NAMES.get(name, name) for name in row['parents']]
            if 'answer' in row: row['answer'] = ANSWERS[i % 6 if i else 6]
            if 'gold' in row: row |= {'prompt': ANSWERS[i % 6], 'gold': ANSWERS[(i + 1) % 6]}
            if row.get('operator') == 'gaussian': row['operator'] = SCRIPT
        run.path(table).write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return run.folder


def write_strange_cells(folder, **how):
    "The same, and families, cells, labels and gates with names that cannot be registered"
    folder = write_hostile(folder, **how)
    cell = lambda name: ''.join([FAMILIES.get((parts := name.partition(':'))[0], parts[0]), *parts[1:]])
    for table in ('episodes', 'lineage', 'gates', 'generations'):
        rows = [json.loads(line) for line in (folder / f'{table}.jsonl').read_text().splitlines()]
        for row in rows:
            if 'family' in row: row['family'] = FAMILIES.get(row['family'], row['family'])
            if row.get('traits'): row['traits']['niche'] = SCRIPT + BIDI
            if table == 'gates': row |= {'organelle': NAMES.get(row['organelle'], row['organelle']),
                                         'numbers': row['numbers'] | {'family': ESCAPE + SCRIPT}}
            if row.get('gate') == 'low_compute': row['gate'] = SCRIPT + ESCAPE
            if 'cells' in row: row |= {'cells': {cell(name): x for name, x in row['cells'].items()},
                                       'gates': row['gates'] | {SCRIPT + BIDI: 3}}
        (folder / f'{table}.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return folder
