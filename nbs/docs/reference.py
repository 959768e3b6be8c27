"""Pages of what can be set, read, typed and called, made of what the package itself knows.

Nothing here is a copy of a fact: names, defaults, units and sentences come from the configurations, the tables, the
gates, the commands and the environment variables of the package. `pages()` is all of them, path → markdown.
"""
import ast
import inspect
import json
import re
from functools import cache
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

import evolora

PACKAGE = Path(evolora.__file__).parent

# Models that people fill in, apart from `EcologyConfig` with its sections and from the parts of society.
MODELS = {
    'training.jobs': ['Job'], 'islands.plan': ['IslandsConfig'],
    'experiments.study_plan': ['Plan', 'World', 'Variant', 'Comparison', 'Knobs', 'Tuning'],
    'experiments.trainer': ['Condition'], 'attention.search.search': ['SearchConfig'],
    'attention.scoring.model_sizes': ['Tier'], 'attention.scoring.sandbox': ['Limits'],
    'host.pretraining': ['PretrainingConfig'], 'host.habit_host': ['HabitConfig'],
    'evaluation.host_calibration': ['Effort'], 'ecology.cost_forecast': ['HostProfile'],
    'experiments.gate_calibration': ['Sizes']}

ENVIRONMENT = {
    'EVOLORA_CACHE': 'The cache: where hosts and all else lies that was fetched or can be made again. Default: '
                     '`~/.cache/evolora`. Models of the Hugging Face hub lie in its own cache, see `HF_HOME`.',
    'EVOLORA_API_KEY': 'Key of the endpoint that `evolora attention search` asks for proposals. It is kept from every '
                       'process that runs a mechanism.',
    'XDG_CACHE_HOME': 'Where trainings of `evolora attention` are kept: in `evolora/attention` below it. Default: '
                      '`~/.cache`.',
    'RAY_ADDRESS': 'A Ray cluster, for studies and islands, where no `--ray` is given.',
    'RAY_AUTH_TOKEN': 'Ray’s own token; where it or the next one is set, a cluster is asked with it.',
    'RAY_AUTH_TOKEN_PATH': 'The file that Ray’s token lies in.',
    'RAY_AUTH_MODE': 'How Ray asks who is there; `token`, unless it is set and where there is a token.',
    'RAY_TMPDIR': 'Where Ray puts its sockets; a path that is too long is refused.',
    'RAY_USAGE_STATS_ENABLED': 'Set to 0 unless you set it: else Ray sends usage statistics to its makers.',
    'TMPDIR': 'Where temporary files lie, and Ray’s sockets, where RAY_TMPDIR is not set.',
    'CUDA_VISIBLE_DEVICES': 'Which GPUs there are; a contained process sees them only where its limits ask for one.',
    'OMP_NUM_THREADS': 'Threads of the processor’s arithmetic; workers get as many as this process has.',
    'COLUMNS': 'The width of the terminal in characters; less than 20 is read as 20. Default: as the terminal says.',
    'FORCE_COLOR': 'Colour in a terminal that does not look like one.',
    'WANDB_MODE': 'Where Weights & Biases sends a tracked run; `offline` unless it is set.',
    'WANDB_PROJECT': 'The project there; `evolora` unless it is set.',
    'WANDB_ERROR_REPORTING': 'Set to false unless you set it: else its makers get errors.',
    'MLFLOW_TRACKING_URI': 'The server of MLflow for a tracked run; by default a database in a folder.',
    'MLFLOW_DISABLE_TELEMETRY': 'Set to true unless you set it.',
    'MLFLOW_LOGGING_LEVEL': 'Set to WARNING unless you set it.',
    'MLFLOW_HTTP_REQUEST_MAX_RETRIES': 'Set to 1 unless you set it, so that a server that is away holds nothing up.',
    'MLFLOW_HTTP_REQUEST_TIMEOUT': 'Set to 10 (seconds) unless you set it.',
    'TRACKIO_DIR': 'Where Trackio keeps a tracked run; by default a folder of its own.',
    'TRACKIO_SPACE_ID': 'A Space that Trackio sends a tracked run to.',
    'TRACKIO_SERVER_URL': 'A server that Trackio sends a tracked run to.',
    'HF_HOME': 'The cache of the Hugging Face hub, where its models lie.',
    'HF_HUB_OFFLINE': 'Nothing is asked of the hub.',
    'TRANSFORMERS_OFFLINE': 'The same, for transformers.',
}
# What processes that evolora starts get, set by none but us; and three constants of the system that look alike.
INTERNAL = {'EVOLORA_CONTAINED', 'EVOLORA_SEARCH', 'EVOLORA_OPENEVOLVE', 'CUDA_CACHE_DISABLE', 'LD_LIBRARY_PATH',
            'DYLD_LIBRARY_PATH', 'TORCHINDUCTOR_CACHE_DIR', 'TOKENIZERS_PARALLELISM', 'JUPYTERLAB_SETTINGS_DIR',
            'JUPYTERLAB_WORKSPACES_DIR', 'JUPYTER_CONFIG_DIR', 'JUPYTER_DATA_DIR', 'JUPYTER_RUNTIME_DIR',
            'JUPYTER_TOKEN', 'SC_OPEN_MAX', 'SC_PAGE_SIZE', 'SC_PHYS_PAGES'}


# ---- markdown ------------------------------------------------------------------------------------------------------
def plain(text: str) -> str:
    "Text that is no markup, but for what stands in backticks"
    parts = re.split(r'(`[^`]*`)', ' '.join(str(text).split()))
    return ''.join(p if p.startswith('`') else re.sub(r'([\\*_<>\[\]$#])', r'\\\1', p) for p in parts)


def code(value) -> str: return f'`{value}`' if str(value) else ''
def cell(text: str) -> str: return text.replace('|', '\\|')
def value_of(value) -> str:
    return code(value if isinstance(value, str) else json.dumps(value, default=str)) or '(empty)'


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ['---'] * len(head), *rows]
    return '\n'.join(f"| {' | '.join(map(cell, line))} |" for line in lines) + '\n'


# ---- the source of the package -------------------------------------------------------------------------------------
@cache
def sources() -> dict[str, tuple[Path, str]]:
    "Module (without `evolora.`) → its notebook from nbs/, its code"
    found = {}
    for path in sorted(PACKAGE.rglob('*.py')):
        text = path.read_text(encoding='utf-8')
        if name := re.search(r'^# AUTOGENERATED! DO NOT EDIT! File to edit: (?:\.\./)+nbs/(\S+\.ipynb)\.$', text, re.M):
            found['.'.join(path.relative_to(PACKAGE).with_suffix('').parts)] = Path(name[1]), text
    return dict(sorted(found.items(), key=lambda item: item[1][0]))


@cache
def trees() -> dict[str, ast.Module]: return {name: ast.parse(text) for name, (_, text) in sources().items()}


def lesson(module: str) -> str: return f'[{module}](../nbs/{sources()[module][0]})'


def names(node) -> list[str]:
    "`e.config.market` as a list; what is no name is empty"
    if isinstance(node, ast.Attribute): return [*names(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else ['']


def short_for(function) -> dict[str, list[str]]:
    "What a function calls something else for short, as in `c = e.config.market`"
    found = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign): continue
        for target in node.targets:
            each = zip(target.elts, node.value.elts) if isinstance(target, ast.Tuple) and isinstance(
                node.value, ast.Tuple) else [(target, node.value)]
            found |= {t.id: names(v) for t, v in each if isinstance(t, ast.Name) and isinstance(v, ast.Attribute)}
    return found


@cache
def chains() -> dict[str, list[list[str]]]:
    "Module → every attribute that it reads, as the names that lead there: `e.config.market.bet` as a list"
    made = {}
    for module, tree in trees().items():
        made[module] = [names(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
        for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            brief = short_for(function)
            read = [names(n) for n in ast.walk(function) if isinstance(n, ast.Attribute)]
            made[module] += [[*brief[first], *rest] for first, *rest in read if first in brief]
    return made


@cache
def owners(model: str) -> set[str]:
    "How things are called that are made with a configuration of this kind, like `market` for a Market"
    return {c.name.lower() for tree in trees().values() for c in tree.body if isinstance(c, ast.ClassDef)
            for f in c.body if getattr(f, 'name', '') == '__init__' for a in f.args.args
            if a.annotation and ast.unparse(a.annotation) == model}


def used_in(setting: str, model: type[BaseModel]) -> list[str]:
    """Modules that read a setting: as `market.bet` or `market.config.bet`, or, where its model is named, as an
    attribute of what is called a configuration there."""
    *above, name = setting.split('.')
    home = model.__module__.removeprefix('evolora.')
    def read(module: str, front: list[str]) -> bool:
        last = front[-1]
        if above and above[-1] in front[-2:]: return True
        if not above and front[-2:] in (['ecology', 'config'], ['e', 'config']): return True
        if above and last == 'config' and front[-2:-1] and front[-2] in owners(model.__name__): return True
        named = module == home or re.search(rf'\b{model.__name__}\b', sources()[module][1])
        return bool(named and last in ('config', 'c', 'settings') or module == home and last == 'self')
    return [module for module, found in chains().items() if any(last == name and front and read(module, front)
                                                                for *front, last in found)]


# ---- settings ------------------------------------------------------------------------------------------------------
def sections() -> list[tuple[str, type[BaseModel]]]:
    "`EcologyConfig` and its sections, by dotted name"
    from evolora.ecology.config import EcologyConfig
    def below(name, model):
        yield name, model
        for key, field in model.model_fields.items():
            if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
                yield from below(f'{name}.{key}'.strip('.'), field.annotation)
    return [*below('', EcologyConfig)]


def settings_page() -> str:
    from evolora.ecology.config import PRESETS, EcologyConfig, load_config, settings
    presets = {path.stem: load_config(path.stem) for path in sorted(PRESETS.glob('*.yaml'))}
    elsewhere = {name: {row['setting']: row['value'] for row in settings(config)} for name, config in presets.items()}
    models = dict(sections())
    parts = ['# Settings', 'Every knob of an ecology, with default, unit, bounds and effect, and which modules read '
             'it. `evolora config PRESET` prints them with their values, `evolora run --set market.bet=.5` changes '
             'one, and in Python `load_config("stakes").but({"market.bet": .5})`. Learning rate, KL, merges and all '
             'else that has another name elsewhere: [how is it called here?](../called.md)']
    rows, last = settings(EcologyConfig()), None
    order = [section for section, _ in sections()]
    for row in sorted(rows, key=lambda row: order.index(row['setting'].rpartition('.')[0])):
        section = row['setting'].rpartition('.')[0]
        if section != last:
            doc = inspect.getdoc(models[section])
            parts += [f"(settings-{section or 'ecology'})=\n## {section or 'The ecology itself'}", plain(doc) + '.']
            last = section
        name, model = row['setting'], models[section]
        other = {}
        for preset, values in elsewhere.items():
            if values[name] != row['default']: other.setdefault(value_of(values[name]), []).append(preset)
        bounds = ', '.join(filter(None, (row['unit'], row['bounds'])))
        facts = [f"default {value_of(row['default'])}", f'unit: {bounds}']
        facts += [f"{value} in {', '.join(names)}" for value, names in other.items()]
        used = ', '.join(lesson(m) for m in used_in(name, model))
        parts += [f"(setting-{name})=\n### {name}", plain(row['meaning']), f"{'; '.join(facts)}.", f'Read in: {used}']
    return '\n\n'.join(parts) + '\n'


def default_of(field) -> str:
    if made := field.default_factory:
        if inspect.isfunction(made) and inspect.signature(made).parameters: return '(follows from others)'
        return value_of(made())
    if isinstance(field.default, BaseModel): return code(f'{type(field.default).__name__}()')
    return value_of(field.default)


def fields(model: type[BaseModel]) -> list[list[str]]:
    "Rows of a model: field, type, default, bounds, meaning"
    from evolora.ecology.config import _bounds
    written = {n.target.id: ast.unparse(n.annotation) for n in ast.walk(ast.parse(inspect.getsource(model).strip()))
               if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    rows = []
    for name, field in model.model_fields.items():
        default = '(needed)' if field.is_required() else default_of(field)
        kind = written.get(name) or getattr(field.annotation, '__name__', str(field.annotation))
        rows.append([code(name), code(kind), default, _bounds(field), plain(field.description or '')])
    return rows


HEAD = ['setting', 'type', 'default', 'bounds', 'effect']


def society_page() -> str:
    from evolora.ecology.parts import _LIBRARY, part_named
    parts = ['# Parts of society', 'Switched on in a configuration under `society`, by name: `society: {archive: {}}` '
             'takes the defaults, and `evolora run --set society.archive.odds=20` another value. What each of them '
             'notes stands in the table `society` of a run.']
    for name in _LIBRARY:
        kind = part_named(name)
        module = kind.__module__.removeprefix('evolora.')
        parts += [f'(part-{name})=\n## {name}', f'{plain(inspect.getdoc(kind))}. The lesson: {lesson(module)}.',
                  table(HEAD, fields(kind.Config)) if kind.Config.model_fields else 'It has no settings.']
    parts += ['## What they note', 'Events of the table `society`, with the names of their numbers.',
              table(['module', 'event', 'numbers'],
                    [[lesson(m), code(e), ', '.join(map(code, n))] for m, e, n in noted()])]
    return '\n\n'.join(parts) + '\n'


def noted() -> list[tuple[str, str, list[str]]]:
    "(module, event, numbers) of every call of `note`; what is put together as it is noted stands as it is written"
    found = []
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == 'self.note' and node.args): continue
            first, numbers = node.args[0], [k.arg for k in node.keywords if k.arg and k.arg != 'others']
            names = [n.value for n in (first.body, first.orelse) if isinstance(n, ast.Constant)] if isinstance(
                first, ast.IfExp) else [first.value] if isinstance(first, ast.Constant) else []
            names = names or [ast.unparse(first).strip("f'\"")]
            found += [(module, name, numbers) for name in names]
    return found


def models_page() -> str:
    parts = ['# Other settings', 'What else can be filled in: training jobs, islands, studies, and searches for '
             'attention mechanisms.']
    for module, names in MODELS.items():
        for name in names:
            model = getattr(import_module(f'evolora.{module}'), name)
            parts += [f'(model-{name})=\n## {name}', f'{plain(inspect.getdoc(model) or "")}. In {lesson(module)}.',
                      table(HEAD, fields(model))]
    return '\n\n'.join(parts) + '\n'


def knobs_page() -> str:
    from evolora.ecology.knobs import KNOBS
    rows = [[code(name), f'[{k.field}](#setting-{k.field})', plain(k.description), k.unit, k.bounds]
            for name, k in KNOBS.items()]
    return ('# Knobs that turn while it runs\n\nIn the lab, and by `ecology.controls.turn(contest=.5)`; the others '
            'hold for a whole run.\n\n' + table(['knob', 'setting', 'effect', 'unit', 'bounds'], rows))


# ---- what a run leaves ---------------------------------------------------------------------------------------------
def tables_page() -> str:
    from evolora.ecology.run_folder import COLUMNS, TABLES
    parts = ['# Tables of a run', 'A run is a folder: `run.json`, and a file of JSON lines for each of these tables, '
             'such as `episodes.jsonl`. `evolora.analysis.load(FOLDER)` reads all of them; '
             '`pandas.read_json("episodes.jsonl", lines=True, dtype=False)` one. A value that is not known is missing, '
             'and never 0.']
    for name, columns in TABLES.items():
        rows = [[code(column), kind.__name__, plain(COLUMNS[name][column])] for column, kind in columns.items()]
        parts += [f'(table-{name})=\n## {name}', f'The file `{name}.jsonl`.',
                  table(['column', 'type', 'meaning'], rows)]
    return '\n\n'.join(parts) + '\n'


def ticker_page() -> str:
    from evolora.ecology.record import TICKER
    return ('# The ticker\n\nThe one line that a generation prints, from left to right:\n\n'
            + table(['field', 'meaning'], [[code(k), plain(v)] for k, v in TICKER.items()]))


def gates_page() -> str:
    from evolora.assimilation.gates import EVENTS, GATES, gate_label
    parts = ['# Gates', 'What two organelles must pass before a merged child takes their place, in this order; each '
             'asks a question, and compares two numbers. An attempt ends at the first that stays shut, and the table '
             '`gates` of a run has every decision. Merges are off unless [merging.share](#setting-merging.share) is '
             'above 0.']
    for name, gate in GATES.items():
        parts += [f'(gate-{name})=\n## {name}: {gate_label(name)}',
                  f'{gate.question[0].upper()}{plain(gate.question[1:])} It opens '
                  f'if `{gate.value} {gate.relation} {gate.bound}`.', f'In words: o7 … `{gate.sentence}`']
        if gate.unknown: parts.append(f'Where `{gate.value}` is not known: o7 … `{gate.unknown}`')
    for name, sentence in EVENTS.items():
        parts += [f'(gate-{name})=\n## {name}: {gate_label(name)}', f'What became of an attempt: o7 … `{sentence}`']
    return '\n\n'.join(parts) + '\n'


def lineage_page() -> str:
    from evolora.ecology.lifecycle import LINEAGE
    from evolora.ecology.variation import OPERATORS, crossover
    parts = ['# Births and deaths', 'Events of the table [lineage](#table-lineage), `lineage.jsonl`, and their reasons: why was it '
             'born, why did it die? `evolora report RUN` shows every life with its end.']
    for event, reasons in LINEAGE.items():
        head = ['reason' if event == 'birth' else 'words in its reason', 'why']
        parts += [f'(lineage-{event})=\n## {event}', table(head, [[code(k), plain(v)] for k, v in reasons.items()])]
    ways = {**OPERATORS, 'crossover': crossover}
    parts += ['## Operators', 'How a child differs from its parents, the column `operator`; `merge` is a merged child, '
              'and what has no parents has its reason there.',
              table(['operator', 'what it does'], [[code(k), plain(inspect.getdoc(f))] for k, f in ways.items()])]
    return '\n\n'.join(parts) + '\n'


def ledger_page() -> str:
    from evolora.economy.book import REASONS
    return ('# Reasons of the ledger\n\nStakes are a closed account. Every change of a stake is a row of the table '
            '[ledger](#table-ledger), with one of these reasons.\n\n'
            + table(['reason', 'what moved'], [[code(k), plain(v)] for k, v in REASONS.items()]))


# ---- what can be typed ---------------------------------------------------------------------------------------------
def commands(command=None, path: str = 'evolora') -> list[tuple[str, object]]:
    "(path, command) of every command and every group, from the top"
    if command is None:
        from typer.main import get_command

        from evolora.cli.app import app
        command = get_command(app)
    found = [(path, command)]
    for name, one in getattr(command, 'commands', {}).items():
        if not one.hidden: found += commands(one, f'{path} {name}')
    return found


def option_rows(command) -> list[list[str]]:
    rows = []
    for p in command.params:
        if getattr(p, 'hidden', False): continue
        names = ' '.join(map(code, [*p.opts, *p.secondary_opts] if p.opts[0].startswith('-') else [p.name.upper()]))
        usual = str(p.default) if isinstance(p.default, Path) else p.default
        default = '(needed)' if p.required else '' if usual in (None, False, ()) or callable(usual) else value_of(usual)
        ends = ('≥', getattr(p, 'min', None)), ('≤', getattr(p, 'max', None))
        bounds = ', '.join(f'{sign} {end:g}' for sign, end in ends if end is not None)
        rows.append([names, default, bounds, plain(p.help or '')])
    return rows


def commands_page() -> str:
    parts = ['# Commands', 'Every command and every option, as `--help` prints them. Exit code 0: done; 2: it could '
             'not be done, and one line says why; 3: `run` ended early; 130: Ctrl-C.']
    for path, command in commands():
        parts += [f"(command-{path.replace(' ', '-')})=\n## {path}", plain(command.help or '')]
        rows = option_rows(command)
        if rows: parts.append(table(['option', 'default', 'bounds', 'effect'], rows))
        below = [f"[{path} {name}](#command-{path.replace(' ', '-')}-{name})"
                 for name, one in getattr(command, 'commands', {}).items() if not one.hidden]
        if below: parts.append(f"Below it: {', '.join(below)}")
        if command.epilog: parts.append(plain(command.epilog))
    return '\n\n'.join(parts) + '\n'


def environment_read() -> set[str]:
    "Names of environment variables in the modules that look at the environment, or set something in it"
    found, like = set(), re.compile('[A-Z]+(_[A-Z]+)+')
    for module, tree in trees().items():
        if 'environ' not in sources()[module][1]: continue
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        texts -= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        found |= {*re.findall(r"environ\.get\('([A-Z_]+)'", sources()[module][1])}
        found |= {name for name in texts | {n.arg for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg}
                  if like.fullmatch(name)}
    return found | {name for _, text in sources().values() for name in re.findall(r'\bEVOLORA_[A-Z_]+', text)}


def environment_page() -> str:
    return ('# Environment variables\n\nWhat evolora reads of the environment. Where is the cache, where do hosts lie: '
            '`EVOLORA_CACHE`, and for models of the hub its own `HF_HOME`.\n\n'
            + table(['variable', 'what it does'], [[code(k), plain(v)] for k, v in ENVIRONMENT.items()]))


def pages() -> dict[str, str]:
    "Every page of the reference, by its path in the site"
    made = {'settings': settings_page(), 'knobs': knobs_page(), 'society': society_page(), 'models': models_page(),
            'commands': commands_page(), 'environment': environment_page(), 'tables': tables_page(),
            'ticker': ticker_page(), 'gates': gates_page(), 'lineage': lineage_page(), 'ledger': ledger_page()}
    return {f'reference/{name}.md': text for name, text in made.items()}
