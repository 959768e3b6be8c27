from . import examiner as examiner
from . import gates as gates
from . import merge_test as merge_test
from . import merging as merging
from . import off_policy as off_policy
from . import pairing as pairing
from . import sequential as sequential
from . import trials as trials
from .merging import (
    Fisher as Fisher, Merged as Merged, RULES as RULES, Shared as Shared, Spectrum as Spectrum, align as align,
    beside as beside, combine as combine, consensus as consensus, energy_kept as energy_kept,
    evidence_weights as evidence_weights, fisher_mean as fisher_mean, merge as merge, merge_error as merge_error,
    ties_mean as ties_mean, truncate as truncate, under as under,
)
from .sequential import (
    ELond as ELond, PairedTest as PairedTest, Window as Window, betting as betting,
    confidence_sequence as confidence_sequence, e_value as e_value, log_e_value as log_e_value, outlook as outlook,
    pairs_needed as pairs_needed, power_at as power_at, window as window,
)
from .off_policy import (
    Uplift as Uplift, aipw as aipw, aipw_bias as aipw_bias, least_squares as least_squares,
    propensities as propensities, simulate_log as simulate_log,
)
from .gates import (
    Decision as Decision, EVENTS as EVENTS, GATES as GATES, Gate as Gate, event as event, explain as explain,
    gate_label as gate_label, judge as judge, measured as measured, register_gate as register_gate,
    replay as replay, tally as tally, turn as turn,
)
from .examiner import (
    COMMONS as COMMONS, Examiner as Examiner, Tokens as Tokens, fresh as fresh,
)
from .pairing import (
    Assimilation as Assimilation, AssimilationConfig as AssimilationConfig,
)
from .trials import (
    Attempt as Attempt, Child as Child, Merge as Merge, Trial as Trial, attempt as attempt, conceive as conceive,
    probation as probation, screen as screen,
)
from .merge_test import (
    Candidate as Candidate, MergeConfig as MergeConfig, Merging as Merging, Takeover as Takeover, Trials as Trials,
    candidates as candidates, pairs_of as pairs_of,
)
