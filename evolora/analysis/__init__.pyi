from . import answers as answers
from . import claims as claims
from . import gate_charts as gate_charts
from . import offline_page as offline_page
from . import run_animation as run_animation
from . import run_charts as run_charts
from . import run_comparison as run_comparison
from . import run_dashboard as run_dashboard
from . import run_list as run_list
from . import run_report as run_report
from . import society_charts as society_charts
from . import table_checks as table_checks
from . import tables as tables
from . import theme as theme
from . import trackers as trackers
from . import weights as weights
from .table_checks import (
    check_tables as check_tables,
)
from .tables import (
    COMPUTE as COMPUTE, EVOLUTION as EVOLUTION, KNOWN as KNOWN, NO_MEASURE as NO_MEASURE, READING as READING,
    RunData as RunData, age_table as age_table, attempt_table as attempt_table, balances as balances,
    cell_history as cell_history, cell_table as cell_table, dormant_table as dormant_table,
    evolution_sentence as evolution_sentence, evolution_table as evolution_table, gate_table as gate_table,
    gather as gather, left_because as left_because, lineage as lineage, lineage_order as lineage_order,
    load as load, markdown_table as markdown_table, organelle_table as organelle_table, pool as pool,
    rate_bounds as rate_bounds, run_data as run_data, sentence as sentence, stake_table as stake_table,
    summary as summary, tally as tally, world_counts as world_counts, world_rates as world_rates,
    world_table as world_table,
)
from .answers import (
    answer_sample as answer_sample, answer_table as answer_table, with_questions as with_questions,
)
from .theme import (
    BLUE as BLUE, CAUSING as CAUSING, GREEN as GREEN, GREY as GREY, INDIGO as INDIGO, OKABE_ITO as OKABE_ITO,
    OLIVE as OLIVE, ORANGE as ORANGE, PALE as PALE, PURPLE as PURPLE, SIDE_BY_SIDE as SIDE_BY_SIDE,
    VERMILION as VERMILION, beneath as beneath, beside_each_other as beside_each_other, binned as binned,
    bundle as bundle, cause_layers as cause_layers, causes as causes, in_world as in_world, lacks as lacks,
    nothing as nothing, of_run as of_run, one_name_each as one_name_each, one_of as one_of, over_time as over_time,
    per as per, png_of as png_of, reference_line as reference_line, rendered as rendered, rounded as rounded,
    sampled as sampled, save_chart as save_chart, setup as setup, step_for as step_for, stretches as stretches,
    world_layers as world_layers,
)
from .gate_charts import (
    chart_attempts as chart_attempts, chart_gates as chart_gates, chart_turns as chart_turns,
)
from .society_charts import (
    archived as archived, chart_archive as chart_archive, chart_messages as chart_messages,
    chart_prices as chart_prices, chart_reads as chart_reads, chart_sleepers as chart_sleepers,
    messages as messages, reads as reads, sold as sold, spans as spans,
)
from .run_comparison import (
    SEEDS as SEEDS, beside as beside, called as called, comparable as comparable, comparison as comparison,
    kinds as kinds, mean_interval as mean_interval, read_runs as read_runs, what_differs as what_differs,
)
from .run_charts import (
    CHARTS as CHARTS, Entry as Entry, chart_accuracy as chart_accuracy, chart_ages as chart_ages,
    chart_beliefs as chart_beliefs, chart_cells as chart_cells, chart_compute as chart_compute,
    chart_curriculum as chart_curriculum, chart_evolution as chart_evolution, chart_kl as chart_kl,
    chart_lineage as chart_lineage, chart_population as chart_population, chart_roi as chart_roi,
)
from .weights import (
    Beside as Beside, Inspection as Inspection, answers_beside as answers_beside, chart_delta as chart_delta,
    chart_movement as chart_movement, chart_similarity as chart_similarity, chart_spectra as chart_spectra,
    delta_norms as delta_norms, inspect as inspect, movement as movement, similarity as similarity,
    spectra as spectra,
)
from .offline_page import (
    check_page as check_page, figure as figure, inert as inert, page as page, table_html as table_html,
    vega as vega, write_page as write_page,
)
from .run_dashboard import (
    charts_of as charts_of, dashboard as dashboard, tame as tame,
)
from .run_report import (
    CHARTS_HERE as CHARTS_HERE, check_place as check_place, report as report, write_report as write_report,
)
from .run_animation import (
    Panel as Panel, frame as frame, panel as panel, panels as panels, timeline as timeline,
)
from .claims import (
    claim as claim, compared as compared,
)
from .run_list import (
    LAST as LAST, STATES as STATES, check_removable as check_removable, list_runs as list_runs,
    nearest_preset as nearest_preset, remove_run as remove_run,
)
from .trackers import (
    ANSWERS as ANSWERS, LONGEST as LONGEST, MLflow as MLflow, PLACE as PLACE, TRACKERS as TRACKERS,
    TensorBoard as TensorBoard, Tracked as Tracked, Tracker as Tracker, Trackio as Trackio, Wandb as Wandb,
    about_run as about_run, answers_of as answers_of, register_tracker as register_tracker,
    scalars_of as scalars_of, trackers_named as trackers_named,
)
