from . import panel as panel
from . import records as records
from . import search_charts as search_charts
from . import search_report as search_report
from .records import (
    EnsembleLoss as EnsembleLoss, Findings as Findings, FitFound as FitFound, GainFound as GainFound,
    Horizon as Horizon, Measured as Measured, Record as Record, Remeasured as Remeasured, Rescored as Rescored,
    Reverted as Reverted, candidates as candidates, leaders as leaders, operators as operators, plain as plain,
    plain_lines as plain_lines, read_part as read_part, read_search as read_search, words as words,
)
from .search_charts import (
    chart_ablation as chart_ablation, chart_ensemble as chart_ensemble, chart_fits as chart_fits,
    chart_history as chart_history, chart_horizons as chart_horizons, chart_lineage as chart_lineage,
    chart_map as chart_map, chart_pareto as chart_pareto, chart_scores as chart_scores, fooled as fooled,
    front as front,
)
from .search_report import (
    Account as Account, SEALED as SEALED, account as account, compared as compared, headline as headline,
    measured_openly as measured_openly,
)
from .panel import (
    SearchPanel as SearchPanel, candidate_html as candidate_html, state_of as state_of,
)
