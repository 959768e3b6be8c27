"""A cluster is joined in one place, and machines that would give other numbers are refused by name."""
import pytest

from evolora.utils import cluster


def test_without_ray_there_is_one_line(monkeypatch):
    monkeypatch.setattr(cluster, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match='got none; pip install') as error: cluster.join_cluster('10.0.0.1:6379')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('what, value', [('torch', '1.0'), ('threads', '2'), ('evolora', '9'), ('python', '2.7')])
def test_a_machine_that_differs_is_named_with_the_difference(what, value):
    here = cluster.facts()
    cluster.unlike(here, {'a': dict(here), 'b': dict(here)})
    with pytest.raises(ValueError, match=f'machine b .*{what} {value} where this one has'):
        cluster.unlike(here, {'a': dict(here), 'b': here | {what: value}})
