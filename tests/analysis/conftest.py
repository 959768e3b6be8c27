"""Pictures take most of the time of a report; most tests look at a few of them."""
import json

import pytest

from evolora.analysis import run_report


@pytest.fixture
def pictures(monkeypatch):
    "Draw these pictures only; any other is written as what it would be drawn from. Returns all that by name"
    real, specs = run_report.save_chart, {}
    def only(*names):
        def save(chart, path):
            text = json.dumps(chart.to_dict(), sort_keys=True)
            specs.setdefault(path.stem, []).append(text)
            if path.stem in names: return real(chart, path)
            path.write_text(text)
            return path
        monkeypatch.setattr(run_report, 'save_chart', save)
        return specs
    return only
