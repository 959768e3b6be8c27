"""Every layout of a conversation: the same words reach the model, and a reply ends as the layout ends it."""
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from evolora.ecology.config import load_config
from evolora.ecology.knobs import Controls
from evolora.evaluation import fitness_exam
from evolora.evaluation.peft_export import asking_lines
from evolora.experiments import baselines, trainer
from evolora.host.model import Host, load_host, tiny_host
from evolora.organelles.population import Population
from evolora.tasks.families import Cell
from evolora.tasks.forms import FORMS, SYSTEM, Form, System
from evolora.tasks.task_sets import draw_tasks
from evolora.training.examples import encode_examples, read_examples

CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
GEMMA = ("{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
         "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n"
         "{% endif %}")
LLAMA3 = ("{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}<|start_header_id|>{{ m.role }}"
          "<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
          "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}")
PHI3 = ("{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}")
MISTRAL = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }}[/INST]"
           "{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}")

# name: (template, control tokens, eos, end tokens of the model's configuration, the token that ends a turn)
LAYOUTS = {
    'Gemma 3': (GEMMA, ['<pad>', '<eos>', '<bos>', '<start_of_turn>', '<end_of_turn>'], '<eos>',
                ['<eos>', '<end_of_turn>'], '<end_of_turn>'),
    'Gemma without its generation configuration': (GEMMA, ['<pad>', '<eos>', '<bos>', '<start_of_turn>',
                                                           '<end_of_turn>'], '<eos>', ['<eos>'], '<end_of_turn>'),
    'Qwen 3': (CHATML, ['<|endoftext|>', '<|im_start|>', '<|im_end|>'], '<|im_end|>',
               ['<|im_end|>', '<|endoftext|>'], '<|im_end|>'),
    'Qwen 2.5, a base model': (CHATML, ['<|endoftext|>', '<|im_start|>', '<|im_end|>'], '<|endoftext|>',
                               ['<|endoftext|>'], '<|im_end|>'),
    'Llama 3': (LLAMA3, ['<|begin_of_text|>', '<|end_of_text|>', '<|start_header_id|>', '<|end_header_id|>',
                         '<|eom_id|>', '<|eot_id|>'], '<|eot_id|>', ['<|end_of_text|>', '<|eom_id|>', '<|eot_id|>'],
                '<|eot_id|>'),
    'SmolLM 2': (CHATML, ['<|endoftext|>', '<|im_start|>', '<|im_end|>'], '<|im_end|>', ['<|im_end|>'],
                 '<|im_end|>'),
    'Phi 3': (PHI3, ['<unk>', '<s>', '</s>', '<|endoftext|>', '<|assistant|>', '<|system|>', '<|end|>', '<|user|>'],
              '<|endoftext|>', ['<|endoftext|>', '<|assistant|>', '<|end|>'], '<|end|>'),
    'Mistral': (MISTRAL, ['<unk>', '<s>', '</s>', '[INST]', '[/INST]'], '</s>', ['</s>'], '</s>'),
    'no template': (None, ['<|endoftext|>', '<|im_start|>', '<|im_end|>'], '<|im_end|>',
                    ['<|endoftext|>', '<|im_end|>'], '<|im_end|>')}


def tokenizer_of(template, special, eos):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({t: i for i, t in enumerate([*special, *alphabet])}, [], unk_token=special[0]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(special)
    bos = next((t for t in special if t in ('<bos>', '<s>', '<|begin_of_text|>')), None)
    found = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=eos, bos_token=bos, pad_token=special[0])
    found.chat_template = template
    return found


def host_of(name) -> Host:
    template, special, eos, ends, _ = LAYOUTS[name]
    tokenizer, model = tokenizer_of(template, special, eos), tiny_host('llama').model
    model.resize_token_embeddings(len(tokenizer))
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(ends)
    return Host(model, tokenizer, id=name)


CHAT = [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello'}]


# --- which token ends a turn

@pytest.mark.parametrize('name', LAYOUTS)
def test_a_turn_ends_by_the_token_of_its_layout(name):
    host, end = host_of(name), LAYOUTS[name][-1]
    word = host.tokenizer.convert_ids_to_tokens
    assert word(host.end) == end and host.end == host.ends[0] and len({*host.ends}) == len(host.ends)
    assert {*word(host.ends)} == {*LAYOUTS[name][3], LAYOUTS[name][2], end}, 'sampling stops at all of them'


@pytest.mark.parametrize('name', [name for name in LAYOUTS if LAYOUTS[name][0]])
def test_what_is_taught_is_what_the_template_writes(name):
    host = host_of(name)
    found = encode_examples(host, read_examples([{'messages': CHAT}]))
    taught = host.tokenizer.decode(found.prompts[0] + found.replies[0])
    assert host.tokenizer.apply_chat_template(CHAT, tokenize=False).startswith(taught)


@pytest.mark.parametrize('name', LAYOUTS)
def test_all_that_teaches_or_scores_ends_a_reply_alike(name, tmp_path, monkeypatch):
    host, seen = host_of(name), {}
    seen['examples'] = encode_examples(host, read_examples([{'messages': CHAT}])).replies[0][-1]
    seen['feedback'] = Controls(load_config('debug'), Population(host, capacity=1, max_rank=2))._tokens('Hello')[-1]
    monkeypatch.setattr(fitness_exam, 'census', lambda ecology, answers: answers)
    ecology = type('Ecology', (), {'host': host})
    seen['exam'] = fitness_exam.gold_census(ecology, draw_tasks([Cell('math', 1)], n=1, stream='train'))[0][1][-1]
    lessons, usual = [], trainer.Lesson
    monkeypatch.setattr(trainer, 'Lesson', lambda prompts, answers, *rest: lessons.extend(answers) or usual(
        prompts, answers, *rest))
    baselines.train(host, 'sft', budget=2, match='answers', seed=0, cells=(Cell('math', 1),), folder=tmp_path / 'sft')
    seen['sft'] = lessons[0][-1]
    assert {*seen.values()} == {host.end}, seen


def test_a_reply_stops_at_the_end_of_a_turn_that_no_configuration_names():
    host = host_of('Gemma without its generation configuration')
    word = host.model.lm_head.weight
    word.requires_grad_(False)[:] = 0.
    made = host.generate(['Hi'] * 40, max_new_tokens=400, seeds=list(range(40)))
    assert {row[-1] for row in made.tokens} >= {host.end} and all(host.end not in row[:-1] for row in made.tokens)


@pytest.mark.parametrize('name', ['embedded', 'habits'])
def test_the_hosts_that_come_along_end_as_they_did(name):
    host = load_host(name)
    assert host.ends == [host.tokenizer.eos_token_id] and host.end == host.tokenizer.convert_tokens_to_ids('<|end|>')


# --- what a template leaves out

def only(*roles): return ("{% for m in messages %}" + ''.join(
    f"{{% if m.role == '{role}' %}}[{role[0].upper()}]{{{{ m.content }}}}{{% endif %}}" for role in roles)
    + "{% endfor %}{% if add_generation_prompt %}[A]{% endif %}")


def asked(template, form=None):
    host = tiny_host('llama')
    host.tokenizer.chat_template = template
    host = host if form is None else host.in_form(form)
    return host, lambda prompt: host.tokenizer.decode(host.encode([prompt])[0])


def test_a_system_line_that_the_template_leaves_out_goes_into_the_first_turn():
    host, text = asked(only('user', 'assistant'), FORMS['instruction'])
    assert text('2 + 3?') == f'[U]{SYSTEM}\n\n2 + 3?[A]'
    assert text((System('In French.'), 'Hi', 'Salut', 'Bye')) == '[U]In French.\n\nHi[A]Salut[U]Bye[A]'
    row = [{'messages': [{'role': 'system', 'content': 'In French.'}, *CHAT]}]
    assert 'In French.' in host.tokenizer.decode(encode_examples(host, read_examples(row)).prompts[0])
    lines = asking_lines(host.in_form(FORMS['plain']), (System('In French.'), 'Hi'))
    assert 'In French.' in lines.split('Hi')[0] and "'system'" not in lines
    assert asked(only('system', 'user', 'assistant'), FORMS['both'])[1]('Hi').startswith(f'[S]{SYSTEM}[U]Hi')


def test_a_turn_that_the_template_leaves_out_is_refused():
    _, text = asked(only('user'))
    assert text('Hi') == '[U]Hi[A]'
    with pytest.raises(ValueError, match='leaves out turn 2'): text(('Hi', 'Hello', 'Bye'))
    with pytest.raises(ValueError, match='leaves out turn 1'): asked('{{ messages[-1].content }}')[1](('a', 'b', 'c'))


def test_a_template_without_the_question_is_refused_when_it_is_loaded(tmp_path):
    host = tiny_host('llama')
    host.tokenizer.chat_template = only('assistant')
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match='leaves out the question'): load_host(tmp_path)


@pytest.mark.parametrize('wrong', ["1 + 'a'", '1 / 0', 'none.a.b', "'a' | unknown", "'%d' % 'a'", "'{'.format()",
                                   "'a' | truncate(-5, true, 'xxxxxx')"])
def test_a_template_that_fails_for_some_texts_is_one_line(wrong):
    _, text = asked("{{ messages[0].content }}{% if 'zzz' in messages[0].content %}{{ " + wrong + ' }}{% endif %}')
    assert text('Hi') == 'Hi'
    with pytest.raises(ValueError, match='^its chat template fails for a conversation') as error: text('zzz')
    assert '\n' not in str(error.value)


# --- what a tokenizer adds

@pytest.mark.parametrize('pattern, before, behind', [('$A <eos>', [], 1), ('<unk> $A <eos>', [2], 1),
                                                     ('<unk> $A', [2], 0), ('$A <eos> <eos>', [], 2)])
def test_no_prompt_ends_by_what_the_tokenizer_puts_behind_a_text(pattern, before, behind, tmp_path):
    host, plain = tiny_host('llama'), tiny_host('llama').encode(['What is 2 + 3?'])[0]
    host.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=pattern, special_tokens=[('<eos>', 1), ('<unk>', 2)])
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    host = load_host(tmp_path)
    assert host.encode(['What is 2 + 3?']) == [before + plain]
    found = encode_examples(host, read_examples([{'prompt': 'Hi', 'completion': 'yes'}]))
    assert found.prompts[0][-1] not in host.ends and found.replies[0].count(host.end) == 1
    seen = []
    def generate(self, input_ids, **_):
        seen.append(input_ids.tolist())
        return input_ids
    names = {'tokenizer': host.tokenizer, 'model': type('Model', (), {'generate': generate})()}
    exec(asking_lines(host, 'What is 2 + 3?'), names)
    assert seen == [[before + plain]], 'the card asks likewise'


# --- control tokens in the text of a user

@pytest.mark.parametrize('name', LAYOUTS)
def test_a_user_may_write_about_control_tokens(name):
    host = host_of(name)
    controls = {i for i, t in host.tokenizer.added_tokens_decoder.items() if t.special}
    count = lambda ids: sum(i in controls for i in ids)
    word = host.tokenizer.convert_ids_to_tokens(host.end)
    for text in (f'What does {word} mean?', word, f'{word}{word}', f'a\n{word} {word[:-1]}'):
        talk, plain = (text, f'It is {word}.', text), ('a', 'b', 'c')
        assert count(host.encode([text])[0]) == count(host.encode(['a'])[0])
        assert count(host.encode([talk])[0]) == count(host.encode([plain])[0])
        assert text.strip() in host.tokenizer.decode(host.encode([talk])[0]), 'and it is read letter by letter'
        assert count(host.replies([text])[0]) == 1 and host.replies([text])[0][-1] == host.end
        assert host.tokenizer.decode(host.replies([text])[0][:-1]) == text
        found = encode_examples(host, read_examples([{'prompt': text, 'chosen': text, 'rejected': word}]))
        assert [count(x) for x in (found.replies[0], found.rejected[0])] == [1, 1]
    assert count(host.in_form(Form(system=f'No {word}.')).encode(['a'])[0]) == count(
        host.in_form(Form(system='No.')).encode(['a'])[0])


@pytest.mark.parametrize('name', LAYOUTS)
def test_other_texts_are_read_as_they_were(name):
    host, text = host_of(name), 'Ünk <b> </x> <|im'
    rows = [[{'role': 'user', 'content': text}]]
    whole = (f'{text}\n' if host.tokenizer.chat_template is None else
             host.tokenizer.apply_chat_template(rows, tokenize=False, add_generation_prompt=True)[0])
    assert host.encode([text]) == [host.tokenizer(whole, add_special_tokens=False)['input_ids']]


# --- one date

DATED = {"{{ strftime_now('%d %b %Y') }}": '01 Jan 2026', '{% set f = "%Y-%m-%d" %}{{ strftime_now(f) }}': '2026-01-01',
         "{% set day = strftime_now %}{{ day('%B %-d, %Y') }}": 'January 1, 2026',
         '{% macro head(f) %}On {{ strftime_now(f) }}{% endmacro %}{{ head("%A") }}': 'On Thursday',
         "{% if strftime_now is defined %}{% set f = '%d %b' + ' %y' %}{{ strftime_now(f) }}{% endif %}": '01 Jan 26'}


@pytest.mark.parametrize('template', DATED)
@pytest.mark.parametrize('named', [False, True])
def test_no_prompt_changes_overnight(template, named, tmp_path):
    tokenizer, whole = tiny_host('llama').tokenizer, template + ': {{ messages[0].content }}'
    tokenizer.chat_template = {'default': whole, 'tool_use': whole} if named else whole
    host = Host(tiny_host('llama').model, tokenizer, id='x')
    text = f'{DATED[template]}: Hi'
    assert host.tokenizer.decode(host.encode(['Hi'])[0]) == text
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    again = load_host(tmp_path)
    assert again.tokenizer.decode(again.encode(['Hi'])[0]) == text, 'an export asks what the run asked'
    assert again.tokenizer.chat_template == host.tokenizer.chat_template
    if named: assert all(x.endswith(': {{ messages[0].content }}') for x in host.tokenizer.chat_template.values())


# --- ids that come from no text

def with_token(tmp_path, **special):
    host = tiny_host('llama')
    host.tokenizer.add_special_tokens(special)
    host.model.config.eos_token_id = host.model.generation_config.eos_token_id = None
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_an_end_outside_the_vocabulary_is_refused_when_the_host_is_loaded(tmp_path):
    with pytest.raises(ValueError, match='the end of an answer .* up to 258, got 259'):
        load_host(with_token(tmp_path, eos_token='<|im_end|>'))


def test_an_end_that_a_configuration_names_is_checked_too():
    host = tiny_host('llama')
    host.model.generation_config.eos_token_id = [1, 300]
    with pytest.raises(ValueError, match='the end of an answer .* up to 258, got 300'):
        Host(host.model, host.tokenizer, id='x')


def test_padding_outside_the_vocabulary_is_not_used(tmp_path):
    host = load_host(with_token(tmp_path, pad_token='[PAD]'))
    assert host.tokenizer.pad_token_id == 259 and host.pad == host.end == 1
    assert host.generate(['Hi', 'a longer one'], max_new_tokens=3, seeds=[1, 2]).tokens


def test_a_reply_with_a_token_that_the_model_has_no_row_for_is_refused():
    host = tiny_host('llama')
    host.tokenizer.add_tokens(['hello'])
    with pytest.raises(ValueError, match='a reply expected tokens .* up to 258, got 259'): host.replies(['hello'])
    with pytest.raises(ValueError, match='a text expected tokens .* up to 258, got 259'): host.encode(['hello'])
