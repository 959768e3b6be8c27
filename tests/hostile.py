"A run whose names and answers try everything."
import json

from synthetic import write_run

SCRIPT = '</script><script>alert(1)</script><img src=x onerror=alert(1)>'
ESCAPE, BIDI = '\x1b[2J\x1b]0;x\x07', '\u202egpj'
ANSWERS = [SCRIPT, ESCAPE, BIDI, '<svg onload=alert(1)>', 'line\u2028break', '" onmouseover="alert(1)', 'x' * 1_000_000]
NAMES = {'o1': SCRIPT, 'o2': ESCAPE + BIDI, 'o3': 'n' * 5000}


def write_hostile(folder, *, generations=6):
    "Organelles with hostile names give hostile answers, in a folder with a hostile name"
    run = write_run(folder, generations=generations, size=6, tries=3)
    for table in ('episodes', 'ledger', 'lineage', 'generations'):
        rows = [json.loads(line) for line in run.path(table).read_text().splitlines()]
        for i, row in enumerate(rows):
            for key in ('organelle', 'best'):
                if row.get(key) in NAMES: row[key] = NAMES[row[key]]
            if 'parents' in row: row['parents'] = [NAMES.get(name, name) for name in row['parents']]
            if 'answer' in row: row['answer'] = ANSWERS[i % 6 if i else 6]
            if row.get('operator') == 'mutation': row['operator'] = SCRIPT
        run.path(table).write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return run.folder
