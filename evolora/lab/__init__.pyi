from . import answer_views as answer_views
from . import chart_page as chart_page
from . import clickable as clickable
from . import html_views as html_views
from . import lab as lab
from . import live_charts as live_charts
from . import live_view as live_view
from . import open_notebooks as open_notebooks
from . import runner as runner
from . import views as views
from . import weight_charts as weight_charts
from . import widgets as widgets
from .chart_page import (
    ChartPage as ChartPage, page_of as page_of, program as program, single as single,
)
from .open_notebooks import (
    copy_notebooks as copy_notebooks, lab_command as lab_command, lab_notebooks as lab_notebooks,
)
from .live_charts import (
    NO_STAKES as NO_STAKES, SAID as SAID, accounts as accounts, bets as bets, lanes as lanes,
    live_spec as live_spec, output as output, picture_html as picture_html, points as points, stops as stops,
)
from .views import (
    Kept as Kept, MOST_ANSWERS as MOST_ANSWERS, NOBODY as NOBODY, View as View, add_up as add_up,
    kept_now as kept_now, kept_of as kept_of, look as look, look_at as look_at,
)
from .html_views import (
    MEANS as MEANS, NAMED as NAMED, archive_html as archive_html, children as children,
    ends_of_turns as ends_of_turns, events_html as events_html, exam_html as exam_html, gates_html as gates_html,
    leaders as leaders, organelle_html as organelle_html, pick_html as pick_html,
    population_html as population_html, shown as shown, society_html as society_html, table_html as table_html,
    tree_html as tree_html, why as why,
)
from .answer_views import (
    VERDICTS as VERDICTS, answers_html as answers_html, picked as picked, replies_html as replies_html,
)
from .clickable import (
    Clickable as Clickable,
)
from .widgets import (
    Panel as Panel, STYLE as STYLE, TABS as TABS, button as button, error_html as error_html,
    found_html as found_html, knob_box as knob_box, knob_rows as knob_rows, pick_box as pick_box,
    progress_html as progress_html, status_html as status_html,
)
from .runner import (
    Runner as Runner, world_of as world_of,
)
from .weight_charts import (
    organelle_specs as organelle_specs, outputs as outputs, population_specs as population_specs,
)
from .live_view import (
    Memory as Memory, Window as Window, remains as remains,
)
from .lab import (
    Lab as Lab,
)
