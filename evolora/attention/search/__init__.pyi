from . import edits as edits
from . import endpoint as endpoint
from . import grammar as grammar
from . import measure_calibration as measure_calibration
from . import openevolve as openevolve
from . import openevolve_history as openevolve_history
from . import proposal_format as proposal_format
from . import rescoring as rescoring
from . import search as search
from .proposal_format import (
    Member as Member, Proposal as Proposal, apply_diff as apply_diff, diff_text as diff_text,
    read_answer as read_answer,
)
from .grammar import (
    DynamicsGenome as DynamicsGenome, Genome as Genome, Grammar as Grammar, GrammarProposer as GrammarProposer,
    MatrixGenome as MatrixGenome, RandomProposer as RandomProposer, RegressionGenome as RegressionGenome,
)
from .edits import (
    EditProposer as EditProposer, OPERATORS as OPERATORS, edit as edit,
)
from .endpoint import (
    AnswerError as AnswerError, EndpointError as EndpointError, EndpointProposer as EndpointProposer,
    chosen_from as chosen_from, parse_answer as parse_answer, situation_prompt as situation_prompt,
    task_prompt as task_prompt,
)
from .openevolve import (
    answered as answered, best_openevolve as best_openevolve, drive as drive, evaluate_file as evaluate_file,
    judge as judge, need_openevolve as need_openevolve, read_openevolve as read_openevolve,
    run_openevolve as run_openevolve,
)
from .search import (
    Judge as Judge, Proposer as Proposer, Search as Search, SearchConfig as SearchConfig,
    baseline_of as baseline_of, begin_search as begin_search, judge_of as judge_of, proposer_of as proposer_of,
    read_history as read_history, resume_search as resume_search, search_config as search_config,
)
from .openevolve_history import (
    history_of as history_of, score_of as score_of, search_openevolve as search_openevolve,
)
from .rescoring import (
    FRESH as FRESH, ablation as ablation, controls as controls, ensemble as ensemble, findings as findings,
    horizons as horizons, parts as parts, rescore as rescore, write_findings as write_findings,
)
from .measure_calibration import (
    calibration_rows as calibration_rows, calibration_tables as calibration_tables,
    calibration_targets as calibration_targets, control_study as control_study, coverage_study as coverage_study,
    fit_and_score as fit_and_score, null_pairs as null_pairs, null_study as null_study, power_study as power_study,
    time_study as time_study,
)
