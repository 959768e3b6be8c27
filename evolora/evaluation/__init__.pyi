from . import evaluation as evaluation
from . import fitness_exam as fitness_exam
from . import forgetting as forgetting
from . import free_questions as free_questions
from . import host_calibration as host_calibration
from . import merged_export as merged_export
from . import peft_export as peft_export
from . import routing as routing
from . import serving_formats as serving_formats
from . import world_exam as world_exam
from .evaluation import (
    AUGMENTATIONS as AUGMENTATIONS, COLUMNS as COLUMNS, Evaluation as Evaluation, KEY as KEY, KINDS as KINDS,
    answer as answer, answer_all as answer_all, brittleness as brittleness, candidates as candidates,
    cells_of as cells_of, checked_cells as checked_cells, compare as compare, evaluate as evaluate,
    example as example, form_of as form_of, holdout as holdout, listed as listed, oracle as oracle,
    samples as samples, selection as selection, vote as vote,
)
from .forgetting import (
    ORDINARY as ORDINARY, PROSE as PROSE, forgetting_scores as forgetting_scores, forgotten as forgotten,
)
from .routing import (
    Router as Router, believed_router as believed_router, fit_router as fit_router,
)
from .free_questions import (
    Guess as Guess, Profiles as Profiles, Question as Question, Reply as Reply, STRATEGIES as STRATEGIES,
    ask as ask, check_question as check_question, check_request as check_request, profiles_of as profiles_of,
    question as question, ranking as ranking, replies as replies, router_of as router_of,
)
from .peft_export import (
    Ancestor as Ancestor, Layout as Layout, PEFT as PEFT, Subject as Subject, alone as alone,
    asking_lines as asking_lines, bare as bare, card as card, check_exportable as check_exportable,
    descent as descent, export as export, how_to_load as how_to_load, measured as measured, select as select,
    two_sets as two_sets, which_weights as which_weights,
)
from .host_calibration import (
    ALIKE as ALIKE, CALIBRATION as CALIBRATION, Calibration as Calibration, EASIEST as EASIEST, Effort as Effort,
    Forecast as Forecast, HAND as HAND, LEAST as LEAST, LONGEST as LONGEST, MOST as MOST, calibrate as calibrate,
    calibration_kept as calibration_kept, calibration_of as calibration_of, candidate_cells as candidate_cells,
    keep_calibration as keep_calibration, known_calibration as known_calibration, mixed as mixed,
    most_seconds as most_seconds, pass_at as pass_at, rehearse as rehearse, tasks_mark as tasks_mark,
)
from .world_exam import (
    exam_in_world as exam_in_world, exam_in_worlds as exam_in_worlds,
)
from .fitness_exam import (
    Ranks as Ranks, census as census, fitness_ranks as fitness_ranks, gold_census as gold_census,
)
from .merged_export import (
    MERGED as MERGED, check_mergeable as check_mergeable, fold as fold, write_merged as write_merged,
)
from .serving_formats import (
    GGUF as GGUF, LAYOUTS as LAYOUTS, VLLM_RANKS as VLLM_RANKS, check_for_gguf as check_for_gguf,
    converted as converted, layout_named as layout_named, vllm_command as vllm_command, vllm_lacks as vllm_lacks,
    vllm_rank as vllm_rank, write_lora_gguf as write_lora_gguf,
)
