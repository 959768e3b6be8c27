from . import handing as handing
from . import learning_rules as learning_rules
from . import learning_trial as learning_trial
from . import lessons as lessons
from . import population as population
from . import scoring as scoring
from . import traits as traits
from . import updates as updates
from .traits import (
    Organelle as Organelle, Traits as Traits,
)
from .population import (
    Population as Population, delta_norm as delta_norm, founder_factors as founder_factors,
)
from .lessons import (
    LONGEST as LONGEST, Lesson as Lesson, Trees as Trees, fitting_chunk as fitting_chunk, inputs_of as inputs_of,
    longest_of as longest_of, plant as plant, takes_trees as takes_trees,
)
from .learning_rules import (
    Credit as Credit, Directions as Directions, RULES as RULES, Reading as Reading, backprop as backprop,
    check_maps as check_maps, costs_like as costs_like, credit as credit, hebbian as hebbian,
    learning_flops as learning_flops, local as local, node as node, register_rule as register_rule,
)
from .updates import (
    KEEPS_BASIS as KEEPS_BASIS, Plasticity as Plasticity, PlasticityConfig as PlasticityConfig,
    centred_ranks as centred_ranks, evolution_strategy as evolution_strategy, group_advantage as group_advantage,
    kl_from_host as kl_from_host,
)
from .scoring import (
    Scores as Scores, score as score, scoring_flops as scoring_flops,
)
from .handing import (
    Handed as Handed, answers as answers, reach as reach,
)
from .learning_trial import (
    LIMIT as LIMIT, PROMPTS as PROMPTS, Trial as Trial, check_learning as check_learning,
    try_learning as try_learning,
)
