"""Forms: nothing is shown with its answer, reading is lenient about the place and never about the value."""
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateError

from evolora.ecology.config import EcologyConfig, load_config
from evolora.tasks.forms import FORMS, Form, form_named
from evolora.host.model import tiny_host
from evolora.ecology.run_folder import config_hash
from evolora.tasks.families import FAMILIES, Cell, conventions, under
from evolora.tasks.splits import stream_of
from evolora.tasks.task_sets import chance, draw_tasks, sample_tasks
from evolora.utils.randomness import stream

EASY = [Cell(name, family.lowest) for name, family in FAMILIES.items()]


@pytest.mark.parametrize('cell', EASY, ids=str)
def test_solved_questions_are_of_the_cell_and_of_the_train_stream(cell):
    form = FORMS['shots']
    for t in sample_tasks(cell, n=6, rng=stream(1, purpose='forms')):
        solved = form.solved(t)
        assert len(solved) == 3 and t.id not in {s.id for s in solved}
        assert {stream_of(s) for s in solved} == {'train'}
        assert {(s.family, s.depth) for s in solved} == {tuple(cell)}
        assert form.put(t)[-1] == t.prompt and form.put(t)[1::2] == tuple(s.answer for s in solved)


@pytest.mark.parametrize('cell', EASY, ids=str)
def test_a_solved_question_is_not_asked_with_its_answer_in_front(cell):
    form = FORMS['shots']
    for shown in form.solved(draw_tasks([cell], stream='selection', n=1)[0]):
        turns = form.put(shown)
        assert shown.prompt not in turns[:-1] and len(turns) == 7


@pytest.mark.parametrize('name', FORMS)
@pytest.mark.parametrize('cell', EASY, ids=str)
def test_gold_is_right_in_every_form(cell, name):
    for t in draw_tasks([cell], stream='selection', n=4):
        assert FORMS[name].grade(t, t.answer).success


@given(st.text(max_size=300))
def test_no_text_breaks_the_reading(text):
    for cell in EASY:
        t = draw_tasks([cell], stream='train', n=1)[0]
        found = FORMS['shots'].grade(t, text)
        assert 0 <= found.progress <= 1 and (not found.success or found.parsed)


def test_names_and_fields():
    assert load_config('ecology').form.plain
    assert EcologyConfig(form='shots').form == FORMS['shots']
    assert EcologyConfig(form={'shots': 2}).form == Form(shots=2)
    with pytest.raises(ValueError, match='out of plain, instruction, shots, both'): form_named('sots')
    with pytest.raises(ValueError): EcologyConfig(form={'shots': -1})
    with pytest.raises(ValueError): EcologyConfig(form={'shot': 1})


def test_the_plain_form_leaves_no_trace_in_configurations():
    fields = load_config('ecology').model_dump()
    assert 'form' not in fields and config_hash(fields) == config_hash(EcologyConfig(**fields).model_dump())
    assert EcologyConfig(**EcologyConfig(form='both').model_dump()).form == FORMS['both']
    assert len({config_hash(EcologyConfig(form=f).model_dump()) for f in FORMS}) == len(FORMS)


def test_a_host_in_a_form_shares_weights_and_leaves_the_host_alone():
    host = tiny_host('llama')
    other = host.in_form(FORMS['both'])
    assert other.model is host.model and host.form.plain and other.prefixes is host.prefixes
    assert other.weights_hash() == host.weights_hash()
    with_line, without = other.encode(['a question'])[0], host.encode(['a question'])[0]
    assert len(with_line) > len(without)


class Chats:
    "A tokenizer with a chat template, as `Host` uses one"
    chat_template = 'yes'
    def __init__(self, tokenizer, system): self.tokenizer, self.system = tokenizer, system
    def __getattr__(self, name): return getattr(self.tokenizer, name)
    def __call__(self, texts, **_): return self.tokenizer(texts)

    def apply_chat_template(self, chats, **_):
        if not self.system and any(m['role'] == 'system' for chat in chats for m in chat):
            raise TemplateError('System role not supported')
        return [''.join(f"<{m['role']}>{m['content']}\n" for m in chat) + '<assistant>' for chat in chats]


@pytest.mark.parametrize('system', (True, False))
def test_a_system_line_is_in_the_first_turn_where_there_is_no_such_role(system):
    host = tiny_host('llama').in_form(Form(system='Be short.', shots=1))
    host.tokenizer = Chats(host.tokenizer, system)
    text = host.tokenizer.tokenizer.decode(host.encode([('a', 'b', 'c')])[0])
    assert text == ('<system>Be short.\n<user>a\n<assistant>b\n<user>c\n<assistant>' if system else
                    '<user>Be short.\n\na\n<assistant>b\n<user>c\n<assistant>')


def test_what_is_kept_ends_before_the_question():
    host = tiny_host('llama').in_form(FORMS['both'])
    host.tokenizer = Chats(host.tokenizer, True)
    prompts = host.form.prompts(draw_tasks([Cell('math', 1), Cell('string.sort', 1)], stream='train', n=6))
    encoded = host.encode(prompts)
    for prompt, ids, n in zip(prompts, encoded, host.kept(prompts, encoded, 4).lengths):
        assert host.tokenizer.tokenizer.decode(ids[n:]) == f'{prompt[-1]}\n<assistant>'


@pytest.mark.parametrize('cell', EASY, ids=str)
def test_blind_guessing_is_no_skill_in_any_form(cell): assert chance(cell) < .6


@pytest.mark.parametrize('family', ['date.iso', 'json_repair', 'string.sort', 'math'])
def test_solved_questions_of_several_conventions_are_in_turn(family):
    task = draw_tasks([Cell(family, 1)], stream='selection', n=1)[0]
    usual, both = Form(shots=4), Form(shots=4, conventions=2)
    names = conventions(family)[:2]
    assert [t.prompt for t in usual.solved(task)] == [t.prompt for t in both.solved(task)]
    assert [t.answer for t in both.solved(task)] == [
        under(t, names[i % len(names)]).answer for i, t in enumerate(usual.solved(task))]
    assert (both.put(task) == usual.put(task)) == (len(names) == 1)
    assert both.put(task)[-1] == task.prompt


def test_a_form_of_one_convention_is_what_it_was():
    assert 'conventions' not in Form(shots=2).model_dump_json() and Form(conventions=1).plain
    assert Form.model_validate_json(Form(shots=3, conventions=3).model_dump_json()).conventions == 3
