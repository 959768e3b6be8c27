from . import corpus as corpus
from . import diversity as diversity
from . import evaluation as evaluation
from . import model_sizes as model_sizes
from . import sandbox as sandbox
from . import scaling as scaling
from . import training as training
from . import validation as validation
from . import workers as workers
from .corpus import (
    Corpus as Corpus, IGNORED as IGNORED, draw as draw, held_batches as held_batches, read_corpus as read_corpus,
    recall_rows as recall_rows, recall_share as recall_share, standard_library as standard_library,
)
from .model_sizes import (
    Block as Block, LanguageModel as LanguageModel, Size as Size, TIERS as TIERS, Tier as Tier, blank as blank,
    ladder_sizes as ladder_sizes, own_parameters as own_parameters, parameters as parameters,
    positions as positions, read_tier as read_tier, step_flops as step_flops,
)
from .training import (
    HORIZONS as HORIZONS, Trained as Trained, foresight as foresight, held_losses as held_losses,
    held_tokens as held_tokens, one_thread as one_thread, rate_at as rate_at, row_losses as row_losses,
    train as train,
)
from .scaling import (
    Fit as Fit, Gain as Gain, coverage as coverage, fit as fit, horizon_correlation as horizon_correlation,
    loss_table as loss_table, paired_gain as paired_gain, power as power, score as score,
    smallest_gain as smallest_gain,
)
from .sandbox import (
    Limits as Limits, Outcome as Outcome, SHIELDS as SHIELDS, TAIL as TAIL, attempt as attempt, contain as contain,
    pause as pause, protection as protection,
)
from .workers import (
    Job as Job, RayWorkers as RayWorkers, Workers as Workers, work as work,
)
from .validation import (
    BUDGET as BUDGET, Check as Check, LEAKS as LEAKS, Verdict as Verdict, examination as examination,
    examine as examine, validate as validate,
)
from .diversity import (
    CELLS as CELLS, DESCRIPTORS as DESCRIPTORS, ast_distance as ast_distance,
    behaviour_distance as behaviour_distance, cell_of as cell_of, describe as describe, influence as influence,
    novel as novel,
)
from .evaluation import (
    Cache as Cache, Evaluator as Evaluator, Look as Look, corpus_of as corpus_of, look_at as look_at,
    reads as reads, train_many as train_many,
)
