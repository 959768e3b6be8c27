"""Baselines: every FLOP is on the bill, budgets are used up, and a training that stopped goes on as if it had not."""
import json
import math
import shutil
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import torch

from evolora.experiments import baselines
from evolora.experiments import trainer as training
from evolora.experiments.baselines import (CONDITIONS, Life, answer_bits, evaluation_sets, examples_worth, train,
                                           with_shots)
from evolora.experiments.reopened import at_holdout, reopen
from evolora.ecology.config import EcologyConfig
from evolora.organelles.learning_rules import learning_flops
from evolora.evaluation.evaluation import answer, answer_all, oracle, samples, selection, vote
from evolora.evaluation.fitness_exam import gold_census
from evolora.tasks.forms import FORMS, Form
from evolora.host.model import load_host, tiny_host
from evolora.organelles.population import Population
from evolora.ecology.run_folder import Run
from evolora.ecology.sessions import begin_session
from evolora.tasks.families import ID_CELLS, Cell
from evolora.tasks.splits import stream_of
from evolora.experiments.world_arms import ARMS
from evolora.experiments.trainer import Spent, Trainer

LEARNERS = [c for c in CONDITIONS.values() if c.source in ('reward', 'right', 'gold')]


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def tiny(): return tiny_host(hidden=16, layers=2)


def small(name, **changes):
    "A condition with updates that take a moment"
    c, few = CONDITIONS[name], {'tasks': 3, 'copies': min(CONDITIONS[name].copies, 3)}
    if c.plasticity.rule == 'es': few |= {'plasticity': c.plasticity.model_copy(update={'pairs': 2})}
    return c.model_copy(update=few | changes)


# --- earlier turns

def test_turns_go_through_the_template_or_line_by_line(host, tiny):
    talk = ('What is 1 + 2?', '3', 'What is 2 + 2?')
    text = host.tokenizer.decode(host.encode([talk])[0])
    assert text == '<|user|>What is 1 + 2?<|assistant|>3<|end|><|user|>What is 2 + 2?<|assistant|>'
    assert tiny.encode([talk]) == tiny.encode(['\n'.join(talk)])
    for one in (host, tiny):
        assert one.encode([talk[0], talk[:1], talk, talk[0]]) == [one.encode([p])[0] for p in (talk[0], talk[:1], talk,
                                                                                              talk[0])]
        assert one.encode([talk[0]]) == one.encode([talk[:1]]) != one.encode([talk])
        assert one.generate([talk, talk[0]], seeds=[1, 2]).tokens[1] == one.generate([talk[0]], seeds=[2]).tokens[0]
    for wrong in ((), talk[:2], ['a list'], 7, (1,)):
        with pytest.raises(ValueError, match='end with a question'): host.encode(['Hi', wrong])


def test_solved_questions_are_of_the_cell_and_never_the_question_itself(host):
    tasks = selection(48) + training.sample_tasks(Cell('logic.bool', 1), n=20, rng=np.random.default_rng(0))
    for plain, shown in zip(tasks, with_shots(tasks, 2, seed=3)):
        first, gold, second, silver, asked = shown.prompt
        assert asked == plain.prompt and plain.prompt not in (first, second) and first != second
        assert shown.id == plain.id and shown.answer == plain.answer
        for turn in (first, second):        # of the train stream, whatever the stream of the question
            assert stream_of(replace(plain, prompt=turn)) == 'train'
    assert with_shots(tasks, 2, seed=3) == with_shots(tasks, 2, seed=3) != with_shots(tasks, 2, seed=4)


def test_a_question_is_not_solved_in_front_of_itself(monkeypatch):
    drawn = training.sample_tasks(Cell('logic.bool', 1), n=3, rng=np.random.default_rng(0))
    monkeypatch.setattr(baselines, 'sample_tasks', lambda *a, **how: drawn)
    for i in range(3):
        prompts = with_shots([drawn[i]], 2, seed=99)[0].prompt[::2]
        assert sorted(prompts) == sorted(t.prompt for t in drawn) and prompts[-1] == drawn[i].prompt


# --- the bill

@pytest.mark.parametrize('condition', LEARNERS, ids=lambda c: c.name)
def test_every_flop_is_on_the_bill(host, condition, monkeypatch):
    trainer, asked, learned, generate = Trainer(host, small(condition.name)), [], [], Population.generate
    def spied(self, prompts, who, **how):
        made = generate(self, prompts, who, **how)
        asked.append(made)
        return made
    monkeypatch.setattr(Population, 'generate', spied)
    learn = trainer.plasticity.learn
    def watched(lesson, **how):
        report = learn(lesson, **how)
        learned.append((lesson, report))
        return report
    trainer.plasticity.learn = watched
    for _ in range(2): trainer.update()
    play = sum(m.flops.sum() for m in asked) / 1e9
    assert trainer.spent.play == pytest.approx(play, rel=1e-9) and trainer.spent.choose == 0
    rolled = play if condition.plasticity.rule == 'es' else 0.
    reported = sum(r.gflops.sum() for _, r in learned)
    assert trainer.spent.learn == pytest.approx(reported - rolled, abs=1e-9)
    if condition.plasticity.rule == 'backprop' and not condition.plasticity.probe:      # as `learning_flops`
        useful = [lesson.take(np.flatnonzero(lesson.advantage)) for lesson, _ in learned]
        once = sum(learning_flops(trainer.population, u, 'backprop').sum() for u in useful if len(u)) / 1e9
        assert trainer.spent.learn == pytest.approx(once, rel=1e-9)
    if condition.plasticity.probe: assert any(r.kl.notna().any() for _, r in learned)
    answers = sum(len(m) for m in asked)
    assert trainer.spent.answers == trainer.spent.episodes == answers
    assert trainer.spent.gold == (6 if condition.source == 'gold' else 0)
    tokens = sum(int(m.prompt_tokens.sum() + m.new_tokens.sum()) for m in asked)
    if condition.source == 'gold':
        tokens = sum(len(e) for l, _ in learned for e in host.encode(l.prompts)) + sum(len(a) for l, _ in learned
                                                                                      for a in l.answers)
    assert trainer.spent.tokens == tokens and trainer.spent.seconds > 0


@pytest.mark.parametrize('condition', LEARNERS, ids=lambda c: c.name)
def test_lessons_are_of_the_train_stream_and_of_the_cells(tiny, condition):
    cells = [Cell('math', 1), Cell('math', 2), Cell('string.sort', 3)]
    trainer = Trainer(tiny, small(condition.name), cells=cells)
    for id, task in trainer.draw(40):
        assert stream_of(task) == 'train' and Cell(task.family, task.depth) in trainer.niches[id]
    before = {t.id for _, t in trainer.draw(40)}
    trainer.updates += 1
    assert len(before & {t.id for _, t in trainer.draw(40)}) < 20          # every update has its own questions
    assert sorted({c for own in trainer.niches.values() for c in own}) == sorted(cells)
    assert len(trainer.population) == (2 if condition.specialists else 1)
    if condition.specialists: assert all(len({c.family for c in own}) == 1 for own in trainer.niches.values())


def test_gold_answers_end_where_the_host_ends(host):
    trainer = Trainer(host, small('sft'))
    asked = trainer.draw(30)
    lesson = trainer.lesson(asked)
    for (_, task), tokens in zip(asked, lesson.answers):
        assert tokens[-1] == host.ends[0] and host.tokenizer.decode(tokens[:-1]) == task.answer
    assert set(lesson.advantage) == {1.} and trainer.spent.gold == 30


def test_expert_iteration_learns_from_what_was_right(host):
    trainer = Trainer(host, small('rft', tasks=12))
    lesson = trainer.lesson(trainer.draw(12))
    assert set(lesson.advantage) == {0., 1.} and lesson.advantage.sum() == trainer.spent.right


# --- until the budget is used up

@pytest.mark.parametrize('condition', [
    c if c.name in ('local', 'es', 'sft') else pytest.param(c, marks=pytest.mark.slow)
    for c in LEARNERS if c.name != 'backprop'], ids=lambda c: c.name)
def test_a_budget_of_flops_is_used_up_to_one_per_cent(host, condition):
    "Of so small a budget, one question more or less is half a per cent"
    spent, budget = [], {'es': 25., 'specialists': 110., 'sft': 12., 'sft_bits': 12.}.get(condition.name, 35.)
    made = train(host, small(condition.name, tasks=8 if condition.source == 'gold' else 3), budget=budget,
                 examples=20 if condition.name == 'sft_bits' else None,
                 on_update=lambda t: spent.append(t.spent.gflops))
    assert abs(made.spent.gflops / budget - 1) < .015 and len(spent) > 4
    assert made.spent.gflops < budget + max(np.diff([0., *spent]))


@pytest.mark.parametrize('name, budget', [('sft', 20.), pytest.param('local', 100., marks=pytest.mark.slow)])
def test_the_last_update_is_cut_to_fit(host, name, budget):
    "A budget below a single update of full size, and one of six and a half"
    assert abs(train(host, name, budget=budget).spent.gflops / budget - 1) < .01


@pytest.mark.parametrize('match, budget', [('answers', 50), ('tokens', 1500)])
@pytest.mark.parametrize('name', ['sft', 'local'])
def test_other_currencies(host, name, match, budget):
    used = train(host, small(name), budget=budget, match=match).spent.used(match)
    assert used == pytest.approx(budget, rel=.02 if match == 'tokens' else .05)
    if name == 'sft' and match == 'answers': assert used == budget


def test_seconds_are_a_budget_too(tiny):
    made = train(tiny, small('sft'), budget=.5, match='seconds')
    assert made.spent.seconds > .3 and made.spent.gold > 3


def test_choosing_is_paid_for(several):
    assert abs(several.spent.gflops / 110 - 1) < .02 and several.spent.choose > .03 * 110
    assert several.spent.choose == pytest.approx(several.routers['family'].gflops)
    assert several.spent.answers == several.spent.episodes + several.routers['family'].answers
    assert several.routers['family'].fitted == several.routers['cell'].fitted and several.best in several.population


def brief(name, **changes):
    "A condition that lives by short generations"
    own = dict(market=dict(questions=6, round=3), curriculum=dict(copies=2)) | changes
    changes = CONDITIONS[name].changes
    return CONDITIONS[name].model_copy(update={'changes': changes | {
        k: changes.get(k, {}) | x if isinstance(x, dict) else x for k, x in own.items()}})


def test_a_life_pays_for_its_answers_its_lessons_and_its_scoring(host):
    made = train(host, brief('ecology'), budget=24)
    assert min(made.spent.play, made.spent.learn, made.spent.evidence) > 0 == made.spent.choose
    before, after = (gflops for gflops, _ in made.learner.served[-2:])      # the last generations are cut
    assert before < 24 and after == made.spent.gflops == pytest.approx(24, rel=.02)
    usual, census = (made.learner.costs[k]['flops'] for k in ('usual', 'census'))
    assert usual < census
    life, rows = Life(host, brief('ecology', merging=dict(share=.9, least=2, most=4, look=2)), seed=5), []
    for _ in range(3):
        life.update()
        rows.append(life.ecology.history[-1].row)
    total = lambda *parts: pytest.approx(sum(r['gflops'][k] for r in rows for k in parts))
    assert life.spent.play == total('play') and life.spent.learn == total('learn') and life.spent.learn > 0
    assert life.spent.evidence == total('gate', 'score') and life.spent.alone == total('alone')
    assert life.spent.answers == sum(r['episodes'] + r['gate_answers'] for r in rows)
    assert life.spent.right == round(sum(r['episodes'] * r['accuracy'] + r['gate_right'] for r in rows))
    assert [len(row) for _, row in life.served] == [6] * 3 and life.served[-1][0] == life.spent.gflops
    assert sum(life.decisions.values()) == 3


def test_generations_are_counted_where_no_budget_is_given(host):
    made = train(host, brief('single'), generations=2)
    assert made.learner.updates == 2 and not made.routers and made.best == made.population.ids[0]


def test_whoever_is_believed_answers_for_a_life(host):
    made = train(host, brief('ecology', market=dict(questions=6, round=3, contest=.1)), generations=3, seed=2)
    assert len(made.population) > 1 and made.spent.choose == 0
    market = made.learner.ecology.market
    assert made.routers['family'].table == {f: market.leader(f) for f in market.families}
    tasks = selection(24, seed=3)
    found = made.ways(tasks)
    assert list(found) == ['routed', 'best', 'vote', 'oracle']
    assert found['routed'].answers.organelle.tolist() == [market.leader(t.family) for t in tasks]
    assert set(found['best'].answers.organelle) == {made.best}
    led = [market.leader(f) for f in market.families]
    assert led.count(made.best) == max(map(led.count, led))


def test_a_search_gets_better_by_answers_that_it_did_not_choose_by_and_does_not_learn(host):
    life = Life(host, brief('random_search', market=dict(questions=24, round=6), rank=1, serving=dict(few=4, size=1.)))
    search, tasks = life.ecology.serving, selection(96, seed=3)
    means = lambda: gold_census(life.ecology, tasks).likelihoods.mean()
    before = means()
    for _ in range(12): life.update()
    assert life.births == life.deaths == 0 and life.spent.learn == 0 and not life.ecology.plasticity.updates.any()
    assert search.tried >= 6 * search.mutants and search.taken and search.size != 1.
    assert life.spent.evidence > 0 and means() > before


@pytest.mark.parametrize('call, named', [
    (dict(match='euros'), 'match'), (dict(budget=0), 'budget'), (dict(budget=math.inf), 'budget'),
    (dict(condition='magic'), 'known: frozen'), (dict(examples=3), 'gold'),
    (dict(examples=0, condition='sft'), 'examples'), (dict(condition='single', examples=3), 'single lives'),
    (dict(generations=3), 'a budget or generations'), (dict(budget=None), 'a budget or generations'),
    (dict(budget=None, generations=3), 'of a condition that lives'),
    (dict(condition='specialists', budget=.1), 'choosing among')])
def test_what_cannot_be_trained_is_one_line(tiny, call, named):
    if 'specialists' in call.values(): tiny = load_host('embedded', threads=1)
    with pytest.raises(ValueError, match=named) as e: train(tiny, **{'condition': 'local', 'budget': 1.} | call)
    assert '\n' not in str(e.value)


# --- stopped and continued

@pytest.mark.parametrize('name', ['local', 'es', 'sft_bits', *(pytest.param(name, marks=pytest.mark.slow)
                                                               for name in ('sft', 'specialists'))])
def test_a_training_that_stopped_goes_on_bit_for_bit(host, name, tmp_path, monkeypatch):
    how = dict(budget=5., every=2, seed=4, examples=7 if name == 'sft_bits' else None)
    if name == 'specialists': how |= dict(budget=25., cells=[Cell('math', 1), Cell('string.sort', 1)])
    whole = train(host, small(name), **how)
    update, calls = Trainer.update, []
    def interrupted(self, n=None):
        calls.append(n)
        if len(calls) == 4: raise KeyboardInterrupt
        return update(self, n)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, 'update', interrupted)
        with pytest.raises(KeyboardInterrupt): train(host, small(name), folder=tmp_path, **how)
    assert [p.name for p in tmp_path.iterdir()] == ['checkpoint.safetensors']
    parts = train(host, small(name), folder=tmp_path, **how)
    assert parts.population.weights_hash() == whole.population.weights_hash()
    without = lambda spent: {k: v for k, v in asdict(spent).items() if k != 'seconds'}
    assert without(parts.spent) == without(whole.spent)


def test_moments_are_part_of_the_checkpoint(host, tmp_path):
    one, two = (Trainer(host, small('local')) for _ in range(2))
    for _ in range(3): one.update()
    one.save(tmp_path)
    two.load(tmp_path)
    first, second = one.plasticity.state(), two.plasticity.state()
    for x, y in zip(first.pop('moments').values(), moments := second.pop('moments').values()): assert torch.equal(x, y)
    assert first == second and two.updates == 3 and two.spent == one.spent
    assert any(x.any() for x in moments)


@pytest.mark.parametrize('other', [dict(seed=1), dict(cells=[Cell('math', 1)]), dict(examples=9), 'condition', 'host'])
def test_a_checkpoint_is_not_continued_by_another_training(host, tmp_path, other):
    Trainer(host, small('sft')).save(tmp_path)
    kind, theirs = small('sft', tasks=4) if other == 'condition' else small('sft'), host
    if other == 'host':
        theirs = load_host('embedded', threads=1)
        with torch.no_grad(): theirs.model.get_input_embeddings().weight[0, 0] += 1
    stranger = Trainer(theirs, kind, **(other if isinstance(other, dict) else {}))
    before = stranger.population.weights_hash()
    with pytest.raises(ValueError, match='other settings'): stranger.load(tmp_path)
    assert stranger.population.weights_hash() == before


@pytest.mark.parametrize('damage', [b'', b'hello', b'\x08\0\0\0\0\0\0\0{}      '])
def test_a_damaged_checkpoint_is_one_line(tiny, tmp_path, damage):
    (tmp_path / 'checkpoint.safetensors').write_bytes(damage)
    with pytest.raises(ValueError, match='begin again'): Trainer(tiny, small('sft')).load(tmp_path)


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_numbers_that_blow_up_stop_and_the_last_good_state_is_kept(host, tmp_path, monkeypatch, value):
    good, real = [], training.Plasticity.learn
    def learn(self, lesson, **how):
        report = real(self, lesson, **how)
        if self.updates.sum() == 4: next(iter(self.population.stack.A.values()))[0, 0, 0] = value
        else: good.append((self.population.weights_hash(), {k: x.clone() for k, x in self.state()['moments'].items()}))
        return report
    monkeypatch.setattr(training.Plasticity, 'learn', learn)
    with pytest.raises(ValueError, match='finite weights.*update 4.*update 3 are kept') as e:
        train(host, small('sft'), budget=30, folder=tmp_path, every=100)
    assert '\n' not in str(e.value)
    monkeypatch.undo()
    back = Trainer(host, small('sft'))
    back.load(tmp_path)
    assert len(good) == back.updates == 3 and back.population.weights_hash() == good[-1][0] and back.spent.gold == 9
    assert all(torch.equal(x, back.plasticity.state()['moments'][k]) for k, x in good[-1][1].items())


def test_a_seed_is_a_training(host):
    hashes = [train(host, small('local'), budget=6, seed=s).population.weights_hash() for s in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]


# --- gold answers for bits

def test_examples_worth_follows_the_entropy():
    cells = [Cell('math', 1), Cell('logic.bool', 1), Cell('string.sort', 2)]
    bits = np.mean([answer_bits(c) for c in cells])
    assert answer_bits(cells[0]) != answer_bits(cells[1]) == 4.
    assert examples_worth(4000, 2000, cells) == round(4000 / bits)
    assert examples_worth(4000, 1000, cells) == examples_worth(4000, 3000, cells) == round(4000 * .811278 / bits)
    assert examples_worth(4000, 0, cells) == examples_worth(0, 0) == 1
    for wrong in ((3, 4), (3, -1)):
        with pytest.raises(ValueError, match='right <= episodes'): examples_worth(*wrong)


def test_examples_come_again_in_another_order(tiny):
    trainer, seen = Trainer(tiny, small('sft_bits'), examples=10), []
    while len(seen) < 40:
        drawn = trainer.draw(4)
        trainer.lesson(drawn)
        seen += [t.id for _, t in drawn]
    epochs = [seen[i:i + 10] for i in range(0, 40, 10)]
    assert all(sorted(e) == sorted(epochs[0]) and len(set(e)) == 10 for e in epochs)
    assert len({tuple(e) for e in epochs}) == 4


# --- ways of answering

@pytest.fixture(scope='module')
def several(host):
    "Eight organelles, and their routers"
    return train(host, small('specialists', tasks=3), budget=110)


def test_ways_of_a_population_come_from_the_same_answers(host, several):
    tasks = selection(48, seed=9)
    before, found = several.population.weights_hash(), several.ways(tasks)
    assert list(found) == ['routed', 'routed by cell', 'best', 'vote', 'oracle']
    alone = answer(several.population, tasks, several.routed(tasks))
    assert found['routed'].answers.text.tolist() == alone.text.tolist()
    assert found['routed'].answers.organelle.tolist() == several.routed(tasks)
    assert set(found['best'].answers.organelle) == {several.best}
    all_ids = answer_all(several.population, tasks)
    assert found['oracle'].accuracy == all_ids.groupby(['family', 'depth', 'task']).success.any().mean()
    assert found['vote'].answers.gflops.sum() == pytest.approx(all_ids.gflops.sum())
    assert found['oracle'].accuracy >= max(e.accuracy for e in found.values())
    assert several.population.weights_hash() == before


def test_the_host_alone_in_three_ways(host):
    tasks, found = selection(48, seed=9), {n: train(host, n, budget=1) for n in ('frozen', 'few_shot', 'best_of_k')}
    assert all(t.population is None and t.spent == Spent() for t in found.values())
    ways = {n: t.ways(tasks) for n, t in found.items()}
    assert {n: list(w) for n, w in ways.items()} == {'frozen': ['host'], 'few_shot': ['host'],
                                                    'best_of_k': ['vote', 'oracle']}
    assert ways['frozen']['host'].answers.text.tolist() == answer(host, tasks).text.tolist()
    drawn = samples(host, tasks, None, 8)
    assert ways['best_of_k']['vote'].answers.text.tolist() == vote(drawn).text.tolist()
    assert ways['best_of_k']['oracle'].accuracy == oracle(drawn).success.mean() > ways['best_of_k']['vote'].accuracy
    cost = {n: next(iter(w.values())).answers.gflops.mean() for n, w in ways.items()}
    assert 2 < cost['best_of_k'] / cost['frozen'] < 4       # eight are written, but the question is read once
    assert 2 < cost['few_shot'] / cost['frozen'] < 5
    assert (ways['best_of_k']['vote'].answers.answers == 8).all()


# --- conditions

def test_conditions_are_what_was_promised():
    names = ('frozen few_shot best_of_k single random_search es grpo rft sft sft_bits specialists local backprop '
             'unmerged lot ecology spread spread_lot spread_stakes spread_even spread_halving spread_bandit')
    assert list(CONDITIONS) == names.split() + [name for name in ARMS if name != 'ecology']
    single, unmerged, lot, whole = (CONDITIONS[n].config() for n in ('single', 'unmerged', 'lot', 'ecology'))
    assert (single.founders, single.capacity, single.market.recruit, single.variation.every) == (1, 1, False, 0)
    assert single.plasticity == whole.plasticity and single.curriculum == whole.curriculum
    assert single.market == whole.market.model_copy(update={'recruit': False})
    other = lambda config: {k for k, x in whole.model_dump().items() if config.model_dump()[k] != x}
    assert other(unmerged) == {'merging'} and unmerged.merging.share == 0 < whole.merging.share
    assert other(lot) == {'variation'} and lot.variation.selection == 'lot'
    assert CONDITIONS['random_search'].config().plasticity.rule == 'none'
    assert {n for n, c in CONDITIONS.items() if c.match == 'answers'} == {'local', 'backprop'}
    for one, other in (('sft', 'sft_bits'), ('grpo', 'backprop')):
        assert len({json.dumps(CONDITIONS[n].model_dump(exclude={'name', 'what', 'match'})) for n in (one, other)}) == 1
    assert CONDITIONS['local'].plasticity.rule == whole.plasticity.rule == 'local'


def test_every_specialist_has_its_family_for_a_niche(host):
    population = training.Trainer(host, CONDITIONS['specialists']).population
    assert [one.traits.niche for one in population] == list(dict.fromkeys(c.family for c in ID_CELLS))
    assert [one.traits.niche for one in training.Trainer(host, CONDITIONS['local']).population] == ['']


def test_settings_of_a_life_change_with_the_preset(monkeypatch):
    before = CONDITIONS['ecology'].settings()
    assert json.loads(json.dumps(before)) and before['config']['capacity'] == CONDITIONS['ecology'].config().capacity
    real = training.load_config
    monkeypatch.setattr(training, 'load_config', lambda name: real(name).model_copy(update={'feedback': 3.}))
    assert CONDITIONS['ecology'].settings() != before and CONDITIONS['sft'].settings() == CONDITIONS['sft'].model_dump()


# --- kept, and looked at once

def test_an_adapter_comes_back_as_it_was(host, tmp_path):
    made = train(host, small('sft', tasks=50), budget=150, match='answers')
    made.export(tmp_path / 'a', hello='world')
    tasks = selection(48, seed=2)
    for folder in (tmp_path / 'a', tmp_path / 'a' / 'adapter'):
        back = reopen(folder, {'embedded': host})
        assert back.ways(tasks)['adapter'].answers.text.tolist() == made.ways(tasks)['adapter'].answers.text.tolist()
    note = json.loads((tmp_path / 'a' / 'trained.json').read_text())
    assert note['hello'] == 'world' and note['spent']['gold'] == made.spent.gold
    with pytest.raises(ValueError, match='not an empty folder'): made.export(tmp_path / 'a')


@pytest.mark.parametrize('key', ['host', 'streams', 'grader', 'cost'])
def test_results_of_another_world_are_refused(host, tmp_path, key):
    train(host, small('sft'), budget=3, match='answers').export(tmp_path / 'a')
    note = json.loads((tmp_path / 'a' / 'trained.json').read_text())
    note['hashes'][key] = '0' * 16
    (tmp_path / 'a' / 'trained.json').write_text(json.dumps(note))
    with pytest.raises(ValueError, match=f'{key} was 0+ and is'): reopen(tmp_path / 'a', {'embedded': host})


@pytest.mark.parametrize('change, match', [
    ({'base_model_name_or_path': 'missing/folder/x'}, 'model folder'), ({'r': 0}, 'a whole r'), ({'r': 999}, 'of rank'),
    ({'base_model_name_or_path': '/'}, 'model folder')])
def test_an_adapter_that_cannot_be_read_is_named(host, tmp_path, change, match):
    train(host, small('sft'), budget=3, match='answers').export(tmp_path / 'a')
    path = tmp_path / 'a' / 'adapter' / 'adapter_config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=match) as e: reopen(path.parent)
    assert '\n' not in str(e.value) and str(path.parent) in str(e.value)


def test_what_is_no_result_is_one_line(host, tmp_path, several):
    (tmp_path / 'empty').mkdir()
    (tmp_path / 'note').mkdir()
    (tmp_path / 'note' / 'trained.json').write_text('{"host": 3}')
    for name, named in (('missing', 'adapter_config'), ('empty', 'adapter_config'), ('note', 'name of its host')):
        with pytest.raises(ValueError, match=named) as e: reopen(tmp_path / name)
        assert str(tmp_path / name) in str(e.value)
    with pytest.raises(ValueError, match='at least one folder'): at_holdout([])
    with pytest.raises(ValueError, match='one adapter'): several.export(tmp_path / 'x')
    run = Run.create(tmp_path / 'run', config={}, hashes={}, host={'id': 'embedded'}, seed=0, version='0')
    with pytest.raises(ValueError, match='same circumstances'): reopen(run.folder)


def test_hosts_are_not_mixed(host, tmp_path):
    other = tiny_host(hidden=16, layers=2)
    other.model.save_pretrained(tmp_path / 'host')
    other.tokenizer.save_pretrained(tmp_path / 'host')
    theirs = load_host(tmp_path / 'host', threads=1)
    train(theirs, small('sft'), budget=3, match='answers').export(tmp_path / 'a')
    train(host, small('sft'), budget=3, match='answers').export(tmp_path / 'b')
    with pytest.raises(ValueError, match='expected one host'): at_holdout([tmp_path / 'a', tmp_path / 'b'], n=24)


def test_the_holdout_has_three_parts_of_the_holdout_stream():
    sets = evaluation_sets(48, 33)
    assert [len(sets[k]) for k in ('id', 'ood_depth', 'ood_family')] == [48, 17, 16]
    assert {stream_of(t) for tasks in sets.values() for t in tasks} == {'holdout'}


# --- cells and forms

SHOTS, FEW = FORMS['shots'], [Cell('math', 1), Cell('string.sort', 1)]


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
    "A tiny host as a folder, by its name"
    made, folder = tiny_host('llama'), tmp_path_factory.mktemp('host')
    for part in (made.model, made.tokenizer): part.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope='module')
def rivals(saved, tmp_path_factory):
    "Adapters of that host: in a form or not, of some cells or others"
    here, host = tmp_path_factory.mktemp('rivals'), load_host(saved, threads=1)
    def made(name, cells, form=Form()):
        train(host.in_form(form), small('sft'), budget=3, match='answers', cells=cells).export(here / name)
        return here / name
    return {'usual': made('usual', ID_CELLS), 'part': made('part', FEW), 'beyond': made('beyond', [Cell('math', 4)]),
            'shots': made('shots', [*FEW, Cell('math', 4)], SHOTS),
            'twin': made('twin', [Cell('math', 4), *FEW], SHOTS)}


def live(saved, folder, cells, form='plain'):
    "A run of one generation"
    config = EcologyConfig(cells=cells, form=form, founders=2, capacity=2, rank=1, max_rank=1, max_new_tokens=2,
                           market=dict(questions=2), variation=dict(every=0), curriculum=dict(copies=2))
    with begin_session(folder, load_host(saved, threads=1), config) as session: session.live(1, log=None)
    return folder


def noted(folder): return json.loads((folder / 'trained.json').read_text())


def test_an_adapter_is_asked_in_its_form_again(rivals, saved):
    note = noted(rivals['shots'])
    assert note['cells'] == ['math:1', 'string.sort:1', 'math:4'] and Form(**note['form']) == SHOTS
    assert note['hashes']['form'] == SHOTS.hash and 'form' not in noted(rivals['usual'])
    back = reopen(rivals['shots'])
    assert back.host.form == back.population.host.form == SHOTS and back.cells == (*FEW, Cell('math', 4))
    tasks = selection(4, cells=back.cells)
    rows = back.ways(tasks)['adapter'].answers
    plain = reopen(rivals['shots'] / 'adapter', host=note['host'])
    assert plain.cells is None and plain.host.form.plain
    assert (rows.prompt_tokens > plain.ways(tasks)['adapter'].answers.prompt_tokens * 2).all()
    given = reopen(rivals['shots'] / 'adapter', {'loaded': back.host}, form=SHOTS)
    with pytest.raises(ValueError, match='which leads nowhere; give --host'): reopen(rivals['shots'] / 'adapter')
    with pytest.raises(ValueError, match='host was'): reopen(rivals['shots'] / 'adapter', host='embedded')
    assert given.ways(tasks)['adapter'].answers.text.tolist() == rows.text.tolist()
    assert reopen(rivals['usual']).cells == ID_CELLS


@pytest.mark.parametrize('change, named', [
    ({'form': 'shots'}, 'expected the fields of a form'), ({'form': {'shots': -1}}, 'form shots: Input'),
    ({'form': {'shots': '3'}}, 'form shots: Input'), ({'form': {'evil\n': 1}}, 'form evil'), ({'form': None}, 'fields'),
    ({'form': {'system': 'x' * 501}}, 'form system'), ({'form': {'system': '\ud800'}}, 'trained.json'),
    ({'form': {}}, 'form was'), ({'form': {'shots': 2, 'extract': True}}, 'form was'),
    ({'cells': 'math:1'}, 'expected cells like'),
    ({'cells': []}, 'expected cells like'), ({'cells': [['math', 1]]}, 'expected cells like'),
    ({'cells': ['math:7']}, 'expected a cell like'), ({'cells': ['a\nb:1']}, 'expected a task family'),
    ({'cells': None}, 'expected cells like')])
def test_the_note_of_a_stranger_is_checked(rivals, tmp_path, change, named):
    shutil.copytree(rivals['shots'], tmp_path / 'a')
    (tmp_path / 'a' / 'trained.json').write_text(json.dumps(noted(rivals['shots']) | change))
    with pytest.raises(ValueError, match=named) as e: reopen(tmp_path / 'a')
    assert '\n' not in str(e.value)


def test_a_training_does_not_go_on_in_another_form(tiny, tmp_path):
    Trainer(tiny.in_form(SHOTS), small('sft'), cells=FEW).save(tmp_path)
    for form in (Form(), FORMS['both']):
        with pytest.raises(ValueError, match='other settings, another form'):
            Trainer(tiny.in_form(form), small('sft'), cells=FEW).load(tmp_path)
    Trainer(tiny.in_form(SHOTS), small('sft'), cells=FEW).load(tmp_path)


def test_solved_questions_are_not_put_in_front_twice(tiny):
    with pytest.raises(ValueError, match='few_shot puts solved questions in front itself'):
        train(tiny.in_form(SHOTS), 'few_shot', budget=1).ways(selection(2))


def test_those_who_choose_choose_on_their_cells(host, monkeypatch):
    asked, real = [], baselines.selection
    monkeypatch.setattr(baselines, 'selection', lambda *a, **k: asked.append(real(*a, **k)) or asked[-1])
    made = train(host, small('specialists'), budget=25, cells=FEW)
    assert made.cells == tuple(FEW) and {Cell(t.family, t.depth) for tasks in asked for t in tasks} == set(FEW)
    assert set(made.routers['cell'].cells) == set(map(str, FEW))


def test_own_cells_have_a_paper_of_their_own(rivals, saved, tmp_path):
    run = live(saved, tmp_path / 'run', ['math:1', 'string.sort:1', 'math:4'], 'shots')
    seen = at_holdout([rivals['twin'] / 'adapter', run, rivals['twin']], n=24)
    assert seen.attrs['questions'] == {'ID': 24} and seen.attrs['cells'] == ['math:1', 'string.sort:1', 'math:4']
    kinds = pd.DataFrame(seen.attrs['families'])
    assert set(kinds.family) == {'math', 'string.sort'} and (kinds.groupby(['what', 'way']).questions.sum() == 24).all()
    assert np.allclose(kinds.gain, kinds.accuracy - kinds.host)
    for (what, way), own in kinds.groupby(['what', 'way']):     # families make up the whole
        line = seen[(seen.what == what) & (seen.way == way)].iloc[0]
        assert np.isclose((own.gain * own.questions).sum() / 24, line['ID gain'])
    assert len(seen.attrs['forgotten']) == 3 and {f['what'] for f in seen.attrs['forgotten']} == set(kinds.what)
    assert not [c for c in seen if 'OOD' in c] and list(dict.fromkeys(seen.what)) == [
        'host', str(rivals['twin'] / 'adapter'), str(run), str(rivals['twin'])]
    with_note, without = (seen[seen.what == str(p)].iloc[0] for p in (rivals['twin'], rivals['twin'] / 'adapter'))
    assert (with_note.ID, with_note['ID gain']) == (without.ID, without['ID gain']), 'without a note it is asked alike'
    two = at_holdout([rivals['shots'], rivals['twin']], n=24)
    assert two.attrs['questions'] == {'ID': 24}, 'the same cells in another order'


def test_default_cells_keep_both_papers(rivals):
    seen = at_holdout([rivals['usual'], rivals['part'], rivals['part'] / 'adapter'], n=24)
    assert seen.attrs['questions'] == {'ID': 24, 'OOD': 24} and len(seen) == 4
    alone = at_holdout([rivals['beyond']], n=24)
    assert alone.attrs['questions'] == {'ID': 24} and alone.attrs['cells'] == ['math:4']


def test_other_cells_and_other_forms_are_refused_in_one_line(rivals, saved, tmp_path):
    usual = live(saved, tmp_path / 'usual', list(map(str, ID_CELLS)))
    own = live(saved, tmp_path / 'own', ['math:1', 'string.sort:1'])
    other = live(saved, tmp_path / 'other', ['word.count:1'])
    for folders, named in (([usual, own], 'to be of the cells of'), ([own, other], 'got word.count:1; look at each'),
                           ([own, rivals['beyond']], 'got math:4'), ([usual, rivals['beyond']], 'got math:4'),
                           ([rivals['usual'], rivals['beyond']], 'to be of the cells of'),
                           ([own, rivals['shots']], 'to be asked in the form of'),
                           ([rivals['shots'], rivals['usual']], 'to be asked in the form of')):
        with pytest.raises(ValueError, match=named) as e: at_holdout(folders, n=24)
        assert '\n' not in str(e.value)
    assert len(at_holdout([own, rivals['usual'], rivals['part']], n=24).what.unique()) == 4
