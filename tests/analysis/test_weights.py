"""What no lesson shows of `weights`: every number against dense matrices, other models, hostile text."""
import json
import re
import shutil

import altair as alt
import numpy as np
import pandas as pd
import pytest
import torch
import vl_convert
from scripted import moved

from evolora.evaluation.free_questions import question
from evolora.ecology.checkpoint_files import checkpoints, read_births
from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.utils.files import digest
from evolora.utils.manifest import _seal
from evolora.tasks.forms import Form
from evolora.assimilation.gates import judge
from evolora.host.model import tiny_host
from evolora.analysis.tables import load
from evolora.analysis.weights import (answers_beside, chart_delta, chart_movement, chart_similarity, chart_spectra,
                                      delta_norms, movement, inspect, similarity, spectra)
from evolora.organelles.population import Population
from evolora.organelles.traits import Traits
from evolora.utils.randomness import stream
from evolora.ecology.sessions import begin_session, colony, colony_births, resume_session
from evolora.tasks.families import Cell

CONFIG = load_config('debug').model_copy(update={'max_new_tokens': 4})


def crowd(targets=('o_proj', 'down_proj'), ranks=(1, 4, 3), **how):
    made = Population(tiny_host(layers=3), capacity=6, max_rank=8, targets=targets, **how)
    for i, rank in enumerate(ranks): moved(made, made.birth(rank=rank, rng=stream(i)).id)
    return made


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    "A run of three generations on a small random host"
    where, host = tmp_path_factory.mktemp('runs') / 'run', tiny_host()
    with begin_session(where, host, CONFIG, seed=2) as session: session.live(3, log=None)
    return where, {host.id: host}


# --- weights

@pytest.mark.parametrize('targets, blocks', [(('o_proj',), None), (('q_proj', 'down_proj', 'up_proj'), 2)])
def test_everything_equals_dense_matrices(targets, blocks):
    population = crowd(targets, blocks=blocks)
    weight = {n: population.host.model.get_submodule(n).weight.double() for n in population.shapes}
    for o in population:
        dense = {n: D.double() for n, D in population.delta(o.id).items()}
        norms, values = delta_norms(population, o.id), spectra(population, o.id)
        assert norms['norm'].tolist() == pytest.approx([D.norm().item() for D in dense.values()], rel=1e-6)
        assert norms['host'].tolist() == pytest.approx([W.norm().item() for W in weight.values()], rel=1e-5)
        for (_, row), D in zip(values.iterrows(), dense.values()):
            s = torch.linalg.svdvals(D)[:o.rank].numpy()
            assert row[[f's{i + 1}' for i in range(o.rank)]].tolist() == pytest.approx(s.tolist(), rel=1e-5)
            p = s / s.sum()
            assert row['effective'] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-5)
            assert row['stable'] == pytest.approx((s**2).sum() / s[0]**2, rel=1e-5)
    first = {None: 0, 2: 1}[blocks]
    assert sorted(set(norms.index.get_level_values('block'))) == list(range(first, 3))
    long = np.stack([torch.cat([D.flatten() for D in population.delta(id).values()]).numpy() for id in population.ids])
    long /= np.linalg.norm(long, axis=1, keepdims=True)
    found = similarity(population).loc[population.ids, population.ids]
    assert found.to_numpy() == pytest.approx(long @ long.T, abs=1e-6)


def test_similarity_does_not_know_the_gauge_and_the_order_keeps_families_together():
    population = crowd(ranks=(4, 4))
    near = lambda id: {n: (A, B + 1e-3) for n, (A, B) in population.factors(id).items()}
    for id in ('o1', 'o2'): population.birth(near(id))
    R = torch.from_numpy(stream(1).standard_normal((4, 4))).float()
    before = similarity(population)
    population.write('o3', {n: (R @ A, B @ torch.linalg.inv(R)) for n, (A, B) in population.factors('o3').items()})
    after = similarity(population).loc[before.index, before.index]
    assert after.to_numpy() == pytest.approx(before.to_numpy(), abs=1e-4)
    assert {frozenset(before.index[:2]), frozenset(before.index[2:])} == {frozenset(['o1', 'o3']),
                                                                          frozenset(['o2', 'o4'])}
    assert similarity(population, ['o2']).shape == (1, 1) and len(similarity(population, ['o2', 'o1', 'o2'])) == 2
    with pytest.raises(ValueError, match='at least one organelle'): similarity(population, [])
    with pytest.raises(KeyError, match="no organelle 'x'"): similarity(population, ['x'])


def test_movement_is_the_distance_of_products_also_when_the_rank_changes():
    population = crowd(ranks=(2, 4))
    births = {'o1': population.factors('o2'), 'o2': population.factors('o1')}       # ranks 4 -> 2 and 2 -> 4
    table = movement(population, births)
    for id, factors in births.items():
        now = population.delta(id)
        for block in range(3):
            names = [n for n in now if f'.{block}.' in n]
            was = {n: population.alpha / len(factors[n][0]) * factors[n][1] @ factors[n][0] for n in names}
            far = torch.cat([(now[n] - was[n]).flatten() for n in names]).norm().item()
            assert table.loc[(id, block), 'moved'] == pytest.approx(far, rel=1e-5)
    unmoved = movement(population, {id: population.factors(id) for id in population.ids}, by='organelle')
    assert not unmoved['moved'].any() and not unmoved['relative'].any()
    with pytest.raises(ValueError, match="by expected 'block'"): movement(population, births, by='row')


def test_a_no_op_is_no_warning_and_no_number(recwarn):
    population = Population(tiny_host(), capacity=2)
    population.birth(rank=2), population.birth(rank=3)
    assert not delta_norms(population, 'o1')['relative'].any() and spectra(population, 'o1')['stable'].isna().all()
    table = movement(population, {id: population.factors(id) for id in population.ids})
    assert similarity(population).isna().all(axis=None) and table['relative'].isna().all()
    for chart in (chart_delta(delta_norms(population, 'o1')), chart_spectra(spectra(population, 'o1')),
                  chart_similarity(similarity(population)), chart_movement(table)): chart.to_dict()
    assert not recwarn.list


@pytest.mark.parametrize('layers', [1, 20])
def test_charts_state_what_they_show(layers):
    population = Population(tiny_host(layers=layers), capacity=3)
    moved(population, population.birth(rank=2).id), moved(population, population.birth(rank=3).id)
    table = movement(population, {id: population.factors(id) for id in population.ids})
    for chart in (chart_delta(delta_norms(population, 'o2'), organelle='o2'), chart_similarity(similarity(population)),
                  chart_spectra(spectra(population, 'o2'), organelle='o2'), chart_movement(table)):
        with alt.theme.enable('evolora'): spec = chart.to_dict()
        assert spec['title']['text'] and spec['title']['subtitle'] and re.search(r'\d', spec['description'])
    texts = [part['mark']['type'] for part in chart_delta(delta_norms(population, 'o2')).to_dict()['layer']]
    assert texts == (['rect', 'text'] if layers == 1 else ['rect']), 'many columns carry no numbers'
    with pytest.raises(ValueError, match="movement by 'block' or 'target'"):
        chart_movement(table.groupby('organelle').sum())


# --- answers

def test_log_probabilities_beside_each_other_are_those_of_the_answers():
    population = crowd(ranks=(4,))
    two = answers_beside(population, 'o1', 'three\nlines | <b>', max_new_tokens=5)
    made = population.generate(['three\nlines | <b>'] * 2, [None, 'o1'], temperature=0., max_new_tokens=5)
    assert two.answers['text'].tolist() == made.texts and not two.same
    for name, answer in zip(('host', 'o1'), made.tokens):
        mine = two.tokens[two.tokens['answer'] == name]
        assert mine['token'].tolist() == answer and mine['place'].tolist() == list(range(len(answer)))
        for to, who in (('to host', None), ('to o1', 'o1')):
            ids = torch.tensor([*population.host.encode(['three\nlines | <b>'])[0], *answer])
            logprobs = population.logits(ids[None], organelles=[who])[0].log_softmax(-1)[-len(answer) - 1:-1]
            expected = logprobs.gather(-1, ids[-len(answer):, None])[:, 0].tolist()
            assert mine[to].tolist() == pytest.approx(expected, abs=1e-4)
            assert two.answers.loc[name, to] == pytest.approx(np.mean(expected), abs=1e-4)
    shown = two._repr_markdown_()
    assert '<b>' not in shown and 'lines \\| &lt;b&gt;' in shown and 'another answer' in shown
    with pytest.raises(KeyError, match="no organelle 'o9'"): answers_beside(population, 'o9', 'a')
    for bad in ('', ' ', None, '\ud800'):
        with pytest.raises(ValueError, match='expected a prompt in Unicode text'): answers_beside(population, 'o1', bad)


def test_a_population_in_a_form_is_asked_in_it_as_a_command_asks():
    population = crowd(ranks=(4,))
    population.host, cells = population.host.in_form(Form(shots=1, extract=True)), [Cell('math', 2), Cell('math', 3)]
    two = answers_beside(population, 'o1', 'What is 31 + 4?', max_new_tokens=5, cells=cells)
    asked = question('What is 31 + 4?', population.host.form, cells)
    assert two.put == asked.prompt and two.prompt == 'What is 31 + 4?' and len(two.put) == 3
    made = population.generate([asked.prompt] * 2, [None, 'o1'], temperature=0., max_new_tokens=5)
    assert two.answers['text'].tolist() == made.texts and 'asked as a question of math:2' in two._repr_markdown_()


# --- what is recorded

def test_an_ecology_and_its_folder_agree_about_the_organelles_alive(folder):
    where, hosts = folder
    world = Ecology(next(iter(hosts.values())), CONFIG, seed=2)
    world.run(3, log=None)
    for id in world.population.ids:
        one, two = inspect(world, id), inspect(where, id)
        unsure = {'stakes': 0, 'leads': 0}
        assert one.facts | unsure == two.facts | unsure and two.facts['leads'] is None
        assert one.facts['stakes'] == pytest.approx(two.facts['stakes'])
        assert one.facts['leads'] == [f for f in world.market.families if world.market.leader(f) == id]
        last = load(where).episodes.query('generation == 2 and organelle == @id').groupby('family').size()
        assert one.answers['answers'].to_dict() == last.to_dict()       # an ecology remembers the last generation
        assert two.answers['answers'].sum() >= last.sum() and two.line[-1] == one.line[-1]
        assert one.gates in (two.gates, f'{id} had no turn')            # nor its gates before that
    assert world.demography.births.keys() == set(world.population.ids)


def test_unknown_ids_are_named_with_the_known_in_one_line(folder):
    for source in (folder[0], Ecology(tiny_host(), CONFIG)):
        with pytest.raises(ValueError, match="no organelle 'o99'; known: o1, o2") as e: inspect(source, 'o99')
        assert '\n' not in str(e.value)


def test_hostile_text_is_shown_as_text():
    world = Ecology(tiny_host(), CONFIG)
    id = world.demography.found(0, rank=2, traits=Traits(), step=0., reason='<img src=x>|`').id
    shown = inspect(world, id)._repr_markdown_()
    assert '<img' not in shown and '&lt;img src=x&gt;\\|\\`' in shown


def test_gates_that_were_edited_are_refused(folder, tmp_path):
    where = shutil.copytree(folder[0], tmp_path / 'run')
    row = vars(judge('no_pair', 'o1', 2, pairs=1, least=1)) | {'partners': [], 'final': True}
    known = (where / 'gates.jsonl').read_text()                 # rows after those that a checkpoint vouches for
    for gate, numbers in (('no_pair', {}), ('never', {})):
        (where / 'gates.jsonl').write_text(known + json.dumps(row | dict(gate=gate, numbers=numbers)) + '\n')
        with pytest.raises(ValueError, match="gates of 'o1' expected the numbers"): inspect(where, 'o1')


# --- births

def test_births_come_back_from_a_run_folder(folder):
    where, hosts = folder
    world = Ecology(next(iter(hosts.values())), CONFIG, seed=2)
    world.run(3, log=None)
    population, births = colony_births(where, hosts)
    assert list(births) == list(world.demography.births) and colony(where, hosts)[0].ids == population.ids
    assert all(A.equal(a) and B.equal(b) for id, factors in world.demography.births.items()
               for (A, B), (a, b) in zip(factors.values(), births[id].values()))
    assert movement(population, births).equals(movement(world.population, world.demography.births))


def rewritten(where, change):
    "A checkpoint whose state was changed by an attacker that knows how to sign"
    latest = checkpoints(where)[-1]
    path = latest / 'state.json'
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    manifest = json.loads((latest / 'manifest.json').read_text())
    for name in ('state.json', 'state.safetensors'):
        manifest['files'][name] = {'bytes': (latest / name).stat().st_size, 'sha256': digest(latest / name)}
    (latest / 'manifest.json').write_text(json.dumps(manifest | {'sha256': _seal(manifest)}))
    return latest


def test_births_that_do_not_fit_are_refused(folder, tmp_path):
    def unknown(tree): tree['births']['o99'] = next(iter(tree['births'].values()))
    def short(tree): next(iter(tree['births'].values())).popitem()
    def torn(tree): tree['births'] = [1]
    for i, change in enumerate((unknown, short, torn)):
        where = shutil.copytree(folder[0], tmp_path / str(i))
        latest = rewritten(where, change)
        with pytest.raises(ValueError, match='as births, got others'): colony_births(where, folder[1])
        with pytest.raises(ValueError, match='expected the state of an ecology'):
            resume_session(where, next(iter(folder[1].values())))
    assert read_births(checkpoints(folder[0])[-1], colony(*folder)[0]) and latest.exists()


def test_what_adds_nothing_is_grey_and_has_no_number():
    table = pd.DataFrame([[1., .5, np.nan], [.5, 1., np.nan], [np.nan] * 3], index=list('abc'), columns=list('abc'))
    svg = vl_convert.vegalite_to_svg(chart_similarity(table).to_dict())
    assert svg.count('fill="#cccccc"') == 5 and svg.count('>0.50<') == 2 and 'null' not in svg
