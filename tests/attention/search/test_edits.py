"Edits of syntax trees: each operator does what its name promises, inside of the markers, and is the same each time."
import ast
import json

import pytest
import torch

from evolora.attention.search.edits import OPERATORS, EditProposer, edit
from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, variant
from evolora.host.mechanisms.program_source import Program, Refused, build
from evolora.attention.search.proposal_format import Member, apply_diff
from evolora.utils.randomness import stream

LINES = FRAMEWORKS['matrix_mixers'].program('''
    def matrix(self, q, k, x):
        # one
        a = q * 2.
        b = k * 3.
        a = a + b
        return cut(a @ b.mT)
    def finish(self, y, x): return rms(y)   # a norm
    ''')


def edits(parent, operator, count=40, other=None):
    "The programs that an operator makes of a parent, as sources"
    texts = [edit(stream(0, generation=n, purpose=operator), parent, operator, other) for n in range(count)]
    return [apply_diff(parent.source, text) for text in texts if text]


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_every_operator_stays_between_the_markers(framework):
    found = set()
    for name in VARIANTS[framework]:
        parent, other = Program(variant(framework, name)), Program(variant(framework, 'linear'))
        for operator in OPERATORS:
            for source in edits(parent, operator, 10, other):
                ast.parse(source)       # refused it may be, but it is Python
                assert source.startswith(FRAMEWORKS[framework].head) and source.endswith('    # EVOLVE-BLOCK-END\n')
                found.add(operator)
    assert found == set(OPERATORS) - {'swap lines'}


@pytest.mark.parametrize('operator', sorted(set(OPERATORS) - {'graft'}))
def test_an_edit_is_an_edit_and_the_same_each_time(operator):
    parent = Program(LINES if operator != 'swap function' else variant('coefficient_dynamics'))
    sources = edits(parent, operator)
    assert sources == edits(parent, operator) and sources
    assert all(source != parent.source for source in sources)
    assert len(set(sources)) > 1 or operator == 'swap lines'


def readable(sources):
    "The programs among sources that are not refused"
    found = []
    for source in sources:
        try: found.append(Program(source))
        except Refused: pass
    return found


def answer(program):
    torch.manual_seed(0)
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
    return build(program)(8, 2)(x)


def test_swapped_lines_commute():
    found = readable(edits(Program(LINES), 'swap lines'))
    assert found and len({program.source for program in found}) == 1       # a = a + b has to stay where it is
    assert found[0].block.index('b = k') < found[0].block.index('a = q')
    torch.testing.assert_close(answer(found[0]), answer(Program(LINES)), rtol=0, atol=0)


def test_a_new_parameter_begins_as_nothing_and_learns():
    before = answer(Program(variant('coefficient_dynamics')))
    for program in readable(edits(Program(variant('coefficient_dynamics')), 'insert parameter')):
        torch.testing.assert_close(answer(program), before)
        assert program.block.count('nn.Parameter') == 1
    twice = Program(edits(program, 'insert parameter', 1)[0])
    assert twice.block.count('def setup') == 1 and 'self.scalar1' in twice.block


def test_a_constant_is_another_constant():
    for source in edits(Program(LINES), 'constant'):
        numbers = [[node.value for node in ast.walk(ast.parse(s)) if isinstance(node, ast.Constant)
                    and isinstance(node.value, float)] for s in (LINES, source)]
        assert len(numbers[0]) == len(numbers[1]) and sum(a != b for a, b in zip(*numbers)) == 1


def test_deleting_leaves_something():
    for source in edits(Program(LINES), 'delete'):
        assert len(source) < len(LINES) and 'def ' in source


def test_a_graft_brings_its_setup():
    plain, other = (Program(variant('coefficient_dynamics', name)) for name in ('softmax', 'scalar'))
    sources = edits(plain, 'graft', other=other)
    grafted = [source for source in sources if 'scalar_scores(q' in source]
    assert grafted and all('self.rate = nn.Linear' in source for source in grafted)
    assert all('self.rate = nn.Linear' not in source for source in sources if source not in grafted)
    for program in readable(sources): answer(program)
    assert edit(stream(0), plain, 'graft') is None is edit(stream(0), plain, 'graft', Program(variant('matrix_mixers')))
    assert edit(stream(0), plain, 'graft', plain) is None


def test_what_did_not_change_keeps_its_text():
    changed = edits(Program(LINES), 'constant')
    assert changed and all('return rms(y)' in source for source in changed)
    scaled = [source for source in edits(Program(LINES), 'scale') if 'return rms(y)' not in source]
    assert scaled and all('# one' in source for source in scaled)       # the other method, and its comment


def test_most_edits_of_variants_are_programs():
    fates = []
    for framework in FRAMEWORKS:
        for name in VARIANTS[framework]:
            for operator in OPERATORS:
                sources = edits(Program(variant(framework, name)), operator, 5, Program(variant(framework)))
                fates += [len(readable([source])) for source in sources]
    assert sum(fates) / len(fates) > .8
    without_setup = edits(Program(variant('coefficient_dynamics', 'scalar')), 'delete')
    assert 0 < len(readable(without_setup)) < len(without_setup)


STRANGER = dict(zip(FRAMEWORKS, [*FRAMEWORKS][1:] + [*FRAMEWORKS][:1]))


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_proposals_have_the_parents_they_name(framework):
    proposer = EditProposer(framework)
    first = proposer.propose(stream(0), [])
    assert first.parents == () and first.source == apply_diff(variant(framework), first.notes['diff'])
    archive = [Member(5, variant(framework), .1), Member(6, variant(framework, 'linear'), .9),
               Member(7, variant(framework), None), Member(8, variant(STRANGER[framework]), 2.)]
    for n in range(20):
        proposal = proposer.propose(stream(1, generation=n), archive)
        assert proposal == proposer.propose(stream(1, generation=n), archive)
        assert proposal.parents[0] == 6 and set(proposal.parents) <= {5, 6} and proposal.operator in OPERATORS
        assert len(proposal.parents) == 1 + (proposal.operator == 'graft')
        assert proposal.source == apply_diff(variant(framework, 'linear'), proposal.notes['diff'])
        json.dumps(proposal.notes)


def test_errors_are_one_line():
    with pytest.raises(ValueError, match='framework expected one of'): EditProposer('quantum')
    with pytest.raises(ValueError, match='operator expected one of'): edit(stream(0), Program(LINES), 'wish')


def test_an_operator_without_a_place_proposes_the_parent_which_is_known():
    bare = Member(4, FRAMEWORKS['matrix_mixers'].program('"nothing"'), 1.)
    found = EditProposer('matrix_mixers').propose(stream(0), [bare])
    assert (found.source, set(found.parents), found.notes) == (bare.source, {4}, {'diff': ''})
