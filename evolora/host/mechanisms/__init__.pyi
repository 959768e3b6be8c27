from . import coefficient_dynamics as coefficient_dynamics
from . import frameworks as frameworks
from . import matrix_mixers as matrix_mixers
from . import mechanism_model as mechanism_model
from . import mixer as mixer
from . import operation_counts as operation_counts
from . import program_source as program_source
from . import regression as regression
from .operation_counts import (
    count_operations as count_operations,
)
from .mixer import (
    Mixer as Mixer, ShortConvolution as ShortConvolution, causal_softmax as causal_softmax, cut as cut,
    decay as decay, past as past, past_max as past_max, rms as rms, unit as unit,
)
from .coefficient_dynamics import (
    CoefficientDynamics as CoefficientDynamics, diagonal_scores as diagonal_scores, plain_scores as plain_scores,
    reflected_scores as reflected_scores, scalar_scores as scalar_scores,
)
from .regression import (
    TestTimeRegression as TestTimeRegression, conjugate_gradient as conjugate_gradient,
    kernel_smoother as kernel_smoother, one_step as one_step, ridge as ridge,
    without_covariance as without_covariance,
)
from .matrix_mixers import (
    Distances as Distances, MatrixMixer as MatrixMixer, cauchy as cauchy, rows_sum_to_one as rows_sum_to_one,
    semiseparable as semiseparable, toeplitz as toeplitz,
)
from .frameworks import (
    BASELINE as BASELINE, CONTROLS as CONTROLS, END as END, FACE as FACE, FRAMEWORKS as FRAMEWORKS,
    Framework as Framework, START as START, VARIANTS as VARIANTS, control as control, variant as variant,
)
from .program_source import (
    BIGGEST as BIGGEST, DEEPEST as DEEPEST, LITERALS as LITERALS, LONGEST as LONGEST, Program as Program,
    Refused as Refused, build as build, read_program as read_program, rules as rules,
)
from .mechanism_model import (
    FeedForward as FeedForward, MechanismConfig as MechanismConfig, MechanismForCausalLM as MechanismForCausalLM,
    MechanismLayer as MechanismLayer, MechanismModel as MechanismModel, check_causal as check_causal,
    keep_whole as keep_whole, mechanism_flops as mechanism_flops, turned as turned, turns as turns, waves as waves,
)
