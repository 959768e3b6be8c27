"""What many prompts share is read once: the same answers, the same gradients, and a bill that adds up."""
import numpy as np
import pytest
import torch

from evolora.host import engine
from evolora.ecology.checkpoint_files import checkpoints
from evolora.ecology.config import load_config
from evolora.organelles.learning_rules import credit, learning_flops
from evolora.host.fast_layers import Decoder, Prefixes
from evolora.ecology.ecology import Ecology
from evolora.tasks.forms import FORMS, Form
from evolora.host.model import ARCHITECTURES, Host, tiny_host
from evolora.organelles.population import Population
from evolora.organelles.updates import kl_from_host
from evolora.utils.randomness import stream
from evolora.ecology.sessions import begin_session, resume_session
from evolora.tasks.families import Cell
from evolora.tasks.task_sets import draw_tasks
from evolora.organelles.lessons import Lesson, plant
from evolora.ecology.variation import OPERATORS

CELLS = [Cell('math', 1), Cell('string.sort', 2), Cell('json_repair', 1)]


def grown(architecture='llama', blocks=1, layers=3, form=FORMS['shots']):
    "Two lively organelles in some of the last blocks of a small random host"
    host = tiny_host(architecture, layers=layers).in_form(form)
    population = Population(host, capacity=3, blocks=blocks,
                            targets=('q_proj', 'k_proj', 'v_proj', 'o_proj', 'down_proj'))
    for i in range(2):
        one = population.birth(rank=2 + i, rng=stream(i, purpose='kept'))
        away = OPERATORS['gaussian'](population.factors(one.id), rng=stream(i, purpose='awake'), step=.3)
        population.write(one.id, away)
    return population


def asked(population, n=6, copies=2):
    tasks = [t for t in draw_tasks(CELLS, stream='train', n=n) for _ in range(copies)] * 3
    return population.host.form.prompts(tasks), [id for id in ('o1', 'o2', None) for _ in range(n * copies)]


@pytest.fixture
def whole(monkeypatch):
    "Switches keeping off inside a `with whole():`"
    def off(): monkeypatch.setattr(Host, 'kept', lambda *_: None)
    yield off


@pytest.mark.parametrize('blocks', (1, 2, 3))
@pytest.mark.parametrize('architecture', ARCHITECTURES)
@pytest.mark.parametrize('temperature', (0., 1.))
def test_answers_are_those_of_prompts_that_are_read_whole(architecture, blocks, temperature, whole):
    population = grown(architecture, blocks)
    prompts, who = asked(population)
    how = dict(max_new_tokens=9, temperature=temperature, rows=10)
    kept = population.generate(prompts, who, **how)
    whole()
    read = population.generate(prompts, who, **how)
    close = [i for i, (a, b) in enumerate(zip(kept.margins, read.margins)) if min(a, b) > 1e-4]
    assert len(close) > len(prompts) / 2
    assert [kept.tokens[i] for i in close] == [read.tokens[i] for i in close]
    assert (kept.flops < read.flops).all() and (kept.alone == read.alone).all()


def test_greedy_answers_are_those_of_transformers():
    population = grown('qwen3')
    host, prompts = population.host, asked(population)[0][:6]
    made = host.generate(prompts, max_new_tokens=8, temperature=0)
    assert host.kept(prompts, host.encode(prompts), 8)
    for ids, tokens, margin in zip(host.encode(prompts), made.tokens, made.margins):
        if margin < 1e-4: continue
        theirs = host.model.generate(torch.tensor([ids]), max_new_tokens=8, do_sample=False, eos_token_id=host.ends,
                                     pad_token_id=host.pad)[0, len(ids):].tolist()
        assert tokens == theirs


def test_the_order_and_company_of_rows_do_not_matter():
    population = grown()
    prompts, who = asked(population)
    made = population.generate(prompts, who, seeds=range(len(prompts)), max_new_tokens=9)
    order = stream(0, purpose='order').permutation(len(prompts))
    other = population.generate([prompts[i] for i in order], [who[i] for i in order], seeds=order.tolist(), rows=7,
                                max_new_tokens=9)
    sure = [i for i in range(len(order)) if other.margins[i] > 1e-4]
    assert len(sure) > len(order) / 2
    assert [other.tokens[i] for i in sure] == [made.tokens[order[i]] for i in sure]


@pytest.mark.parametrize('rule', ('local', 'backprop', 'hebbian', 'node'))
@pytest.mark.parametrize('blocks', (1, 2, 3))
@pytest.mark.parametrize('architecture', ('llama', 'gemma3'))
def test_directions_are_those_of_texts_that_are_read_whole(architecture, blocks, rule):
    population = grown(architecture, blocks)
    if rule == 'hebbian': population = settled(population)
    prompts, who = asked(population)
    prompts, who = prompts[:24], who[:24]
    made = population.generate(prompts, who, max_new_tokens=6, below=True)
    advantage = stream(0, purpose='advantage').standard_normal(24)
    given = Lesson(prompts, made.tokens, who, advantage)
    short = Lesson(prompts, made.tokens, who, advantage, below=made.below)
    mixed = Lesson(prompts, made.tokens, who, advantage, below=[x if i % 3 else None for i, x in enumerate(made.below)])
    if rule == 'node':      # noise is drawn a token, and the tokens are others: only that it works can be asked
        found = credit(population, short, rule, rng=stream(0, purpose='node'))
        assert found.flat().isfinite().all() and found.flat().any()
        return
    others = [credit(population, lesson, rule).flat() for lesson in (short, given, mixed)]
    population.host.keeps = False
    assert all(t.begin == 0 and t.stream is None for t in plant(population, given))
    one = credit(population, given, rule).flat()
    assert all(torch.allclose(one, other, atol=2e-4 * one.abs().max().item()) for other in others)
    assert one.abs().max() > 1e-3


def settled(population):
    "The same organelles on the maps that write to the residual stream alone"
    other = Population(population.host, capacity=3, blocks=len({n.split('.')[2] for n in population.shapes}),
                       targets=('o_proj', 'down_proj'))
    for id in population.ids:
        other.birth({n: AB for n, AB in population.factors(id).items() if n in other.shapes})
    return other


def test_trees_begin_at_the_first_adapted_block_and_share_their_trunk():
    population = grown(blocks=2)
    prompts, who = asked(population)
    made = population.generate(prompts[:24], who[:24], max_new_tokens=6, below=True)
    trees = list(plant(population, Lesson(prompts[:24], made.tokens, who[:24], np.ones(24), below=made.below)))
    assert {t.begin for t in trees} == {1}
    assert sum(len(t.ids) for t in trees) == 2 * len(CELLS)         # organelles × beginnings
    assert sorted(r for t in trees for r in set(t.rows.tolist())) == list(range(24))


def test_a_lesson_with_a_free_question_is_read_whole():
    population = grown()
    prompts, who = asked(population)
    made = population.generate(prompts[:4], who[:4], max_new_tokens=4, below=True)
    lesson = Lesson([*prompts[:4], 'a free question'], [*made.tokens, [70, 1]], [*who[:4], 'o1'], np.ones(5),
                    below=[*made.below, None])
    assert {t.begin for t in plant(population, lesson)} == {0}
    assert credit(population, lesson).flat().isfinite().all()


@pytest.mark.parametrize('blocks', (1, 3))
def test_the_bill_adds_up_to_what_is_computed_once(blocks):
    "The rows of one beginning and one reader together pay for reading it once, and each for all that is its own"
    population = grown(blocks=blocks)
    host = population.host
    tasks = draw_tasks(CELLS[:1], stream='train', n=5)
    prompts = host.form.prompts(tasks)
    made = population.generate(prompts, ['o1'] * 5, max_new_tokens=6)
    head = host.kept(prompts, host.encode(prompts), 6).lengths[0]
    own = population.adapter_flops_per_token('o1')
    new = [(int(p), int(t)) for p, t in zip(made.prompt_tokens, made.new_tokens)]
    once = host.meter.forward(head, logits=0) + head * own
    each = sum(host.meter.answer(p, t, kept=head) + own * (p - head + t - 1) for p, t in new)
    assert np.isclose(made.flops.sum(), once + each, rtol=1e-12)
    assert (made.alone == [host.meter.answer(p, t) + own * (p + t - 1) for p, t in new]).all()


def test_readers_share_what_lies_below_their_adapters():
    population = grown(blocks=1)
    prompts = population.host.form.prompts(draw_tasks(CELLS[:1], stream='train', n=4))
    alone = population.generate(prompts, ['o1'] * 4, max_new_tokens=4, temperature=0).flops.sum()
    both = population.generate(prompts * 2, ['o1'] * 4 + ['o2'] * 4, max_new_tokens=4, temperature=0)
    assert both.flops[:4].sum() < alone


@pytest.mark.parametrize('chunk', (40, 8192))
def test_what_was_given_begins_where_play_would_have_left_it(chunk):
    population = grown(blocks=1)
    prompts, who = asked(population)
    made = population.generate(prompts[:24], who[:24], max_new_tokens=6, below=True)
    short, given = (Lesson(prompts[:24], made.tokens, who[:24], np.ones(24), below=b) for b in (made.below, None))
    for a, b in zip(plant(population, short, chunk=chunk), plant(population, given, chunk=chunk), strict=True):
        assert torch.equal(a.ids, b.ids) and a.begin == b.begin > 0
        assert torch.allclose(a.stream, b.stream, atol=1e-5)


def test_learning_costs_less_when_play_was_kept():
    population = grown(blocks=1)
    prompts, who = asked(population)
    made = population.generate(prompts[:24], who[:24], max_new_tokens=6, below=True)
    lessons = [Lesson(prompts[:24], made.tokens, who[:24], np.ones(24), below=b) for b in (made.below, None)]
    short, read = (learning_flops(population, lesson, 'local').sum() for lesson in lessons)
    assert short < .8 * read
    kl = kl_from_host(population, lessons[0])
    assert all(x > 0 for x in kl.values())


def test_the_bill_of_learning_is_for_the_adapted_block_alone_and_its_beginning_once():
    "One of three blocks, forward and back; readout and adapter as ever"
    population = grown(blocks=1)
    host, m = population.host, population.host.meter
    prompts = host.form.prompts(draw_tasks(CELLS[:1], stream='train', n=5))
    made = population.generate(prompts, ['o1'] * 5, max_new_tokens=6, below=True)
    lesson = Lesson(prompts, made.tokens, ['o1'] * 5, np.ones(5), below=made.below)
    head, own = host.kept(prompts, host.encode(prompts), 6).lengths[0], population.adapter_flops_per_token('o1')
    each = [(int(p) - head + int(t) - 1, int(t)) for p, t in zip(made.prompt_tokens, made.new_tokens)]
    layers = m.forward(head, logits=0) + sum(
        m.forward(rest - new + 1, past=head, logits=0) + m.forward(new - 1, past=head + rest - new + 1, logits=0)
        for rest, new in each)
    expected = (2 * layers / 3 + 2 * sum(2 * m.unembedding * t for _, t in each)
                + 3 * own * (sum(rest for rest, _ in each) + head))
    assert learning_flops(population, lesson, 'local').sum() == pytest.approx(expected, rel=1e-12)


def test_prefixes_are_forgotten_oldest_first_and_come_back_bit_for_bit():
    decoder, keep = Decoder(tiny_host().model), Prefixes(most=20_000)
    first = keep.of(decoder, range(5, 30), 1)
    for i in range(20): keep.of(decoder, range(6 + i, 40), 1)
    assert len(keep._known) < 20 and (tuple(range(5, 30)), 1) not in keep._known
    again = keep.of(decoder, range(5, 30), 1)
    assert again is not first and torch.equal(again.x, first.x)
    assert all(torch.equal(a, b) for a, b in zip(again.keys, first.keys))


def test_hosts_that_keep_nothing_answer_all_the_same(monkeypatch):
    population = grown('qwen2')
    prompts, who = asked(population)
    kept = population.generate(prompts, who, max_new_tokens=6, temperature=0)
    monkeypatch.setattr(engine, 'supported', lambda model: False)       # through the host's own modules
    host = population.host
    host.__dict__['_lean'] = False
    read = population.generate(prompts, who, max_new_tokens=6, temperature=0, below=True)
    sure = np.minimum(kept.margins, read.margins) > 1e-4
    assert [t for t, s in zip(kept.tokens, sure) if s] == [t for t, s in zip(read.tokens, sure) if s]
    assert read.below == [None] * len(prompts) and (read.flops <= read.alone).all()


def test_plain_hosts_keep_nothing():
    host = tiny_host()
    assert host.kept(['ab', 'ab c'], host.encode(['ab', 'ab c']), 4) is None


def lively(folder=None):
    config = load_config('debug').model_copy(update=dict(cells=['math:1', 'string.sort:1'], form=FORMS['shots'],
                                                         max_new_tokens=8, blocks=1))
    return tiny_host('llama').in_form(Form()), config


def test_a_run_in_a_form_goes_on_bit_for_bit(tmp_path):
    "Also with nothing kept: a run that is resumed reads all beginnings again"
    host, config = lively()
    with begin_session(tmp_path / 'whole', host, config, seed=3) as session: session.live(4, log=None)
    with begin_session(tmp_path / 'halves', host, config, seed=3) as session: session.live(2, log=None)
    with resume_session(tmp_path / 'halves', tiny_host('llama')) as session: session.live(4, log=None)
    for table in ('episodes', 'generations', 'ledger', 'lineage'):
        one, two = ((tmp_path / which / f'{table}.jsonl').read_bytes() for which in ('whole', 'halves'))
        assert one == two
    one, two = (checkpoints(tmp_path / which)[-1] / 'population' / 'population.json' for which in ('whole', 'halves'))
    assert one.read_bytes() == two.read_bytes()


def test_a_run_states_its_form_and_refuses_another(tmp_path):
    host, config = lively()
    with begin_session(tmp_path / 'run', host, config) as session:
        session.live(1, log=None)
        assert session.run.hashes['form'] == FORMS['shots'].hash
    text = (tmp_path / 'run' / 'run.json').read_text()
    (tmp_path / 'run' / 'run.json').write_text(text.replace('"shots": 3', '"shots": 2'))
    with pytest.raises(ValueError, match='changed after the run began'): resume_session(tmp_path / 'run', host)


def test_the_record_of_an_ecology_is_that_of_the_bill():
    host, config = lively()
    ecology = Ecology(host, config)
    record = ecology.step()
    assert abs(ecology.market.audit().discrepancy) < 1e-9
    assert record.row['gflops']['play'] == pytest.approx(sum(e['gflops'] for e in record.episodes))
    one = record.episodes[0]
    assert one['gflops'] * 1e9 < host.meter.answer(one['prompt_tokens'], one['new_tokens'])
