"""One verifier, in both worlds: what TRL's trainers call, what grades a list, and what lies between."""
import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.host.names import EMBEDDED
from evolora.tasks.families import FAMILIES, Cell, grade, register_family, usual
from evolora.tasks.forms import FORMS
from evolora.tasks.question_set import QuestionSet
from evolora.tasks.rewards import Verifier, as_reward, from_reward, reward_rows
from evolora.tasks.task_sets import draw_tasks
from evolora.training.examples import Example
from evolora.training.jobs import Job
from evolora.training.steps import reward_of
from evolora.utils.randomness import stream

ROWS = [{'question': f'Sort the letters: {w}', 'answer': ''.join(sorted(w)), 'letters': list(w), 'most': len(w)}
        for w in (a + b + c for a in 'qwertzuiop' for b in 'asdfgh' for c in 'yxcv')]


def sorted_right(question, answer, letters): return sorted(letters) == list(answer.strip())


class Table:
    "What `datasets.Dataset` is to a list: a length, and a way to pandas"
    def __init__(self, rows): self.rows = rows
    def __len__(self): return len(self.rows)
    def to_pandas(self): return pd.DataFrame(self.rows)


@pytest.fixture
def own():
    before = dict(FAMILIES.own)
    yield lambda *a, **k: register_family(QuestionSet(*a, **k))
    for name in set(FAMILIES.own) - set(before): del FAMILIES[name], FAMILIES.own[name]


def columns_of(rows):
    "Prompts, and columns as a data set hands them on: through JSON, since a file lies between"
    rows = json.loads(json.dumps(rows))
    return [r['prompt'] for r in rows], {k: [r[k] for r in rows] for k in rows[0] if k != 'prompt'}


def messages(texts): return [[{'role': 'assistant', 'content': t}] for t in texts]


@pytest.mark.parametrize('family', usual())
@pytest.mark.parametrize('form', ['plain', 'both'])
def test_every_family_is_the_reward_that_it_is_here(family, form):
    tasks = draw_tasks([Cell(family, d) for d in FAMILIES[family].depths][:3], stream='train', n=6)
    rng = stream(0, purpose='slips')
    wrong = [FAMILIES[family].slip(t, rng) for t in tasks]
    prompts, columns = columns_of(reward_rows(tasks, FORMS[form]))
    reward = as_reward(family)
    assert reward(prompts, messages(t.answer for t in tasks), **columns) == [1.] * 6
    found = reward(prompts, messages(wrong), **columns)
    assert found == [grade(t, text, extract=True).progress for t, text in zip(tasks, wrong)] and min(found) < 1


def test_the_prompt_is_what_a_host_reads_in_that_form():
    tasks = draw_tasks([Cell('math', 1)], stream='train', n=3)
    host = load_host('embedded', threads=1).in_form(FORMS['both'])
    for row, prompt in zip(reward_rows(tasks, host.form), host.form.prompts(tasks)):
        said = row['prompt']
        assert [m['role'] for m in said] == ['system', *['user', 'assistant'] * 3, 'user']
        assert [m['content'] for m in said[1:]] == list(prompt)
        text = host.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        assert host.tokenizer(text, add_special_tokens=False)['input_ids'] == host.encode([prompt])[0]


def test_an_ecology_learns_by_the_verifier_that_a_trainer_has(own):
    own('letters', Table(ROWS), Verifier(sorted_right))
    ecology = Ecology(load_host('embedded', threads=1), load_config('debug').but(cells=['letters:1']))
    ecology.run(2, log=None)
    asked = {row['task']: row for row in ecology.table('tasks').to_dict('records')}
    lived = ecology.table('episodes').to_dict('records')
    questions = [asked[row['task']]['prompt'] for row in lived]
    letters = [list(q.rpartition(' ')[2]) for q in questions]
    answers = [row['answer'] for row in lived]
    by_list, by_verifier = as_reward('letters'), as_reward(sorted_right)
    graded = [float(row['progress']) for row in lived]
    assert by_list(questions, answers) == graded == by_verifier(questions, messages(answers), letters=letters)
    assert len(lived) > 5 and set(graded) <= {0., 1.}


def test_a_list_is_the_same_from_a_table_and_from_messages():
    plain = [{k: row[k] for k in ('question', 'answer')} for row in ROWS]
    chats = [{'prompt': [{'role': 'user', 'content': r['question']}], 'solution': r['answer']} for r in ROWS]
    one = QuestionSet('x', plain).tasks
    assert QuestionSet('x', Table(plain)).tasks == one == QuestionSet('x', chats).tasks
    assert QuestionSet('x', Table([r | {'prompt': np.array(r['prompt'], object)} for r in chats])).tasks == one
    two = [{'prompt': [{'role': 'user', 'content': 'a'}, {'role': 'user', 'content': 'b'}], 'solution': 'c'}]
    with pytest.raises(ValueError, match='row 1: expected 1 to 1000 printable characters as prompt'):
        QuestionSet('x', two)


def test_columns_come_as_json_has_them_and_belong_to_the_fingerprint():
    def verify(question, answer, letters, *, most, gold): return answer == gold and len(letters) == most
    family = QuestionSet('x', Table(ROWS), Verifier(verify))
    assert family.tasks[0].meta == {'letters': ['q', 'a', 'y'], 'most': 3}
    other = QuestionSet('x', [*ROWS[:-1], ROWS[-1] | {'letters': ['v', 'h', 'p']}], Verifier(verify))
    assert family.content() != other.content()
    with pytest.raises(ValueError, match='row 1: expected text, numbers or lists of them in letters, most'):
        QuestionSet('x', [row | {'letters': {1, 2}} for row in ROWS], Verifier(verify))
    with pytest.raises(ValueError, match="row 1: expected an answer that its own grader"):
        QuestionSet('x', [row | {'most': 9} for row in ROWS], Verifier(verify))


def test_splits_and_streams_of_a_data_set_are_named():
    with pytest.raises(ValueError, match='expected one split of a data set, got train, test'):
        QuestionSet('x', {'train': Table(ROWS), 'test': Table(ROWS)})
    class Many(Table):
        def __len__(self): return 10**9
        def to_pandas(self): raise MemoryError
    with pytest.raises(ValueError, match='at most 200,000 questions, got 1,000,000,000'): QuestionSet('x', Many(ROWS))


@pytest.mark.parametrize('said, text', [
    ('12', 1.), ([{'role': 'assistant', 'content': '12'}], 1.), ([], 0.),
    ([{'role': 'assistant', 'content': None}], 0.),
    ([{'role': 'assistant', 'content': 'thinking'}, {'role': 'assistant', 'content': 'It is 12.'}], 1.),
    ([{'role': 'assistant', 'content': [{'type': 'text', 'text': '12'}]}], 1.), ('', 0.)])
def test_a_completion_may_be_a_text_or_messages(said, text):
    assert as_reward('math')(['7 + 5'], [said], answer=['12']) == [text]


def test_rows_that_do_not_apply_have_no_reward():
    reward = as_reward('math')
    assert reward(['7 + 5'] * 3, ['12'] * 3, answer=['12', None, '12'], family=['math', 'math', 'logic.bool']) == [
        1., None, None]
    def choosy(question, answer): return None if 'x' in question else answer == '1'
    assert as_reward(choosy)(['x', 'y', 'y'], ['1', '1', '2']) == [None, 1., 0.]
    assert as_reward(Verifier(choosy))(['x', 'y'], ['1', '1']) == [None, 1.]
    family = QuestionSet('x', [{'question': f'y{i}', 'answer': '1'} for i in range(60)], Verifier(choosy))
    assert family.grade(family.tasks[0], '1').success and not family.grade(family.tasks[0], '2').success


@pytest.mark.parametrize('values, least, most, worth', [
    ([1.], 0, 1, 1.), ([None], 0, 1, 0.), ([-1.], -1, 1, 0.), ([.5], -1, 1, .75), ([None], -1, 1, 0.),
    ([True], 0, 1, 1.), ((2,), 0, 4, .5)])
def test_a_reward_has_a_scale(values, least, most, worth):
    task = draw_tasks([Cell('math', 1)], stream='train', n=1)[0]
    assert from_reward(lambda prompts, completions, **_: values, least=least, most=most)('x', task) == worth


@pytest.mark.parametrize('found', [[2.], [float('nan')], [float('inf')], [], [1., 1.], 1., None])
def test_what_is_no_reward_is_named(found):
    task = draw_tasks([Cell('math', 1)], stream='train', n=1)[0]
    with pytest.raises(ValueError, match='a reward expected'):
        from_reward(lambda prompts, completions: found)('x', task)


def test_a_column_named_gold_is_the_gold_and_meta_may_be_a_users_own():
    def verify(question, answer, gold, meta): return answer == gold and meta == 'not JSON {'
    reward = as_reward(verify)
    assert reward(['q'], ['1'], gold=['1'], answer=['2'], meta=['not JSON {']) == [1.]
    assert reward(['q'], ['2'], answer=['2'], meta=['not JSON {']) == [1.]
    with pytest.raises(ValueError, match='expected a column gold'): reward(['q'], ['2'], meta=['not JSON {'])


def test_a_reward_gets_what_it_names_and_no_more():
    seen = []
    def strict_reward(completions, answer, letters):
        seen.append((completions, answer, letters))
        return [float(c == a) for c, a in zip(completions, answer)]
    family = QuestionSet('x', ROWS, from_reward(strict_reward, chat=False))
    assert seen[0] == ([ROWS[0]['answer']], [ROWS[0]['answer']], [ROWS[0]['letters']])
    assert not family.grade(family.tasks[0], 'zzz').success


def test_trl_trains_by_these_rewards(tmp_path, own):
    "Two steps of GRPO on the embedded host: its rewards are those of the families"
    trl, datasets = pytest.importorskip('trl'), pytest.importorskip('datasets')
    own('letters', datasets.Dataset.from_list(ROWS), Verifier(sorted_right))
    tasks = draw_tasks([Cell('math', 1), Cell('letters', 1)], stream='train', n=8)
    seen = {}
    def noted(reward):
        def kept(prompts, completions, **columns):
            found = reward(prompts, completions, **columns)
            seen.setdefault(reward.__name__, []).extend(zip(columns['family'], columns['question'], completions, found))
            return found
        return kept
    how = trl.GRPOConfig(output_dir=str(tmp_path), per_device_train_batch_size=8, num_generations=4, max_steps=2,
                         max_completion_length=8, report_to=[], use_cpu=True, disable_tqdm=True, save_strategy='no')
    trl.GRPOTrainer(model=str(EMBEDDED), reward_funcs=[noted(as_reward('math')), noted(as_reward('letters'))], args=how,
                    train_dataset=datasets.Dataset.from_list(reward_rows(tasks))).train()
    by = {(t.family, t.prompt): t for t in tasks}
    for name, rows in seen.items():
        assert len(rows) == 16
        for family, question, said, found in rows:
            task = by[family, question]
            own_family = name == f'{family}_reward'
            assert found == (grade(task, said[0]['content'], extract=True).progress if own_family else None)


def test_a_data_set_is_a_list(own):
    datasets = pytest.importorskip('datasets')
    data = datasets.Dataset.from_list(ROWS)
    assert QuestionSet('x', data).tasks == QuestionSet('x', ROWS).tasks
    family = own('letters', data, Verifier(sorted_right))
    again = datasets.Dataset.from_list(reward_rows(family.tasks[:3]))       # what it holds is what is read back
    assert as_reward('letters')(again['prompt'], messages(again['answer']), **{
        k: again[k] for k in again.column_names if k != 'prompt'}) == [1.] * 3
    sums = datasets.Dataset.from_list(reward_rows(draw_tasks([Cell('math', 1)], stream='train', n=3)))
    assert as_reward('math')(sums['prompt'], messages(sums['answer']), answer=sums['answer']) == [1.] * 3
    with pytest.raises(ValueError, match='expected one split of a data set, got train'):
        QuestionSet('x', datasets.DatasetDict({'train': data}))
    with pytest.raises(ValueError, match='expected questions as .*, got IterableDataset') as error:
        QuestionSet('x', data.to_iterable_dataset())
    assert '\n' not in str(error.value)


KINDS = {'bool': bool, 'int': int, 'NumPy bool': np.bool_, 'float32': np.float32, 'float16': np.float16,
         'int8': np.int8, 'array of one': lambda x: np.array(x),
         'Decimal': Decimal, 'Fraction': Fraction, 'torch': torch.tensor,
         'torch bool': lambda x: torch.tensor(bool(x)), 'torch half': lambda x: torch.tensor(x).half()}


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('right', [0, 1])
def test_a_verifier_may_give_any_kind_of_number_in_all_three_places(kind, right):
    worth = KINDS[kind](right)
    rows = [{'question': f'How many legs have {i} stools?', 'answer': str(i)} for i in range(200)]
    family = QuestionSet('x', rows, Verifier(lambda question, answer: worth if answer == 'r' else 1.))
    assert family.grade(family.tasks[0], 'r').progress == right
    assert as_reward(lambda question, answer: worth)(['a'], ['b']) == [float(right)]
    job = Job(name='j', data=[{'prompt': 'a', 'completion': 'b'}], objective='rloo', verifier=lambda e, reply: worth)
    assert reward_of(job, Example('a', 'b'), 'c') == right
    grade = from_reward(lambda prompts, completions, **columns: [worth])
    assert grade('b', family.tasks[0]) == right


@pytest.mark.parametrize('worth', ['1', 'good', [1.], np.ones(2), torch.ones(2), float('nan'), float('inf'), 1j, {}])
def test_what_is_no_finite_number_is_refused_in_all_three_places(worth):
    rows = [{'question': f'How many legs have {i} stools?', 'answer': str(i)} for i in range(200)]
    job = Job(name='j', data=[{'prompt': 'a', 'completion': 'b'}], objective='rloo', verifier=lambda e, reply: worth)
    for place in (lambda: QuestionSet('x', rows, Verifier(lambda question, answer: worth)),
                  lambda: as_reward(lambda question, answer: worth)(['a'], ['b']),
                  lambda: reward_of(job, Example('a', 'b'), 'c')):
        with pytest.raises(ValueError, match='expected to give a number, got') as error: place()
        assert '\n' not in str(error.value)
