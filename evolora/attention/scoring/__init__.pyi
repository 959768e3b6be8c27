from . import cheats as cheats
from . import corpus as corpus
from . import diversity as diversity
from . import evaluation as evaluation
from . import exam as exam
from . import fork_server as fork_server
from . import gradient_check as gradient_check
from . import measurement as measurement
from . import model_sizes as model_sizes
from . import sandbox as sandbox
from . import scaling as scaling
from . import training as training
from . import validation as validation
from . import workers as workers
from .corpus import (
    Corpus as Corpus, IGNORED as IGNORED, corpus_of as corpus_of, draw as draw, read_corpus as read_corpus,
    recall_rows as recall_rows, recall_share as recall_share, standard_library as standard_library,
)
from .model_sizes import (
    Block as Block, LanguageModel as LanguageModel, Size as Size, TIERS as TIERS, Tier as Tier, blank as blank,
    ladder_sizes as ladder_sizes, own_parameters as own_parameters, parameters as parameters,
    positions as positions, read_tier as read_tier, step_flops as step_flops,
)
from .gradient_check import (
    GradientStopped as GradientStopped, Point as Point, compare as compare, forged_gradient as forged_gradient,
    in_precision as in_precision, watched as watched,
)
from .training import (
    Fitted as Fitted, HORIZONS as HORIZONS, batch_shapes as batch_shapes, checked_steps as checked_steps,
    counted_steps as counted_steps, fit_weights as fit_weights, one_thread as one_thread, rate_at as rate_at,
    row_losses as row_losses, training_secret as training_secret, warm_up as warm_up,
)
from .exam import (
    COMPANY as COMPANY, Exam as Exam, Part as Part, Trained as Trained, answer_losses as answer_losses,
    company_effect as company_effect, draw_exam as draw_exam, exam_at as exam_at, exam_losses as exam_losses,
    graded as graded, mixed_company as mixed_company, predict as predict, train as train,
)
from .scaling import (
    BETTER_BY as BETTER_BY, Fit as Fit, Gain as Gain, coverage as coverage, fit as fit,
    horizon_correlation as horizon_correlation, loss_table as loss_table, paired_gain as paired_gain,
    power as power, score as score, smallest_gain as smallest_gain,
)
from .fork_server import (
    ForkServer as ForkServer, MARK as MARK, die_with as die_with, ended as ended, function_named as function_named,
    search_path as search_path,
)
from .sandbox import (
    Limits as Limits, Outcome as Outcome, SHIELDS as SHIELDS, TAIL as TAIL, attempt as attempt, contain as contain,
    contained as contained, pack as pack, pause as pause, protection as protection, unpack as unpack,
)
from .workers import (
    Job as Job, RayWorkers as RayWorkers, Workers as Workers, twice as twice, work as work,
)
from .validation import (
    BUDGET as BUDGET, Check as Check, Verdict as Verdict, examination as examination, examine as examine,
    validate as validate,
)
from .measurement import (
    Failed as Failed, Measurement as Measurement, Trainings as Trainings, UNREADABLE as UNREADABLE,
    fit_many as fit_many, predict_many as predict_many,
)
from .diversity import (
    CELLS as CELLS, DESCRIPTORS as DESCRIPTORS, ast_distance as ast_distance,
    behaviour_distance as behaviour_distance, cell_of as cell_of, describe as describe, influence as influence,
    novel as novel,
)
from .evaluation import (
    Cache as Cache, Evaluator as Evaluator, Look as Look, look_at as look_at,
)
from .cheats import (
    CHEATS as CHEATS, cheat as cheat, cheat_study as cheat_study, got_away as got_away,
)
