from . import examiner as examiner
from . import gates as gates
from . import merge_test as merge_test
from . import merging as merging
from . import sequential as sequential
from .merging import (
    Fisher as Fisher, Merged as Merged, RULES as RULES, Shared as Shared, Spectrum as Spectrum, align as align,
    beside as beside, combine as combine, consensus as consensus, energy_kept as energy_kept,
    evidence_weights as evidence_weights, fisher_mean as fisher_mean, merge as merge, merge_error as merge_error,
    ties_mean as ties_mean, truncate as truncate,
)
from .sequential import (
    ELond as ELond, betting as betting, confidence_sequence as confidence_sequence,
)
from .gates import (
    Decision as Decision, EVENTS as EVENTS, GATES as GATES, Gate as Gate, event as event, explain as explain,
    gate_label as gate_label, judge as judge, measured as measured, register_gate as register_gate,
    replay as replay, tally as tally, turn as turn,
)
from .examiner import (
    Examiner as Examiner, fresh as fresh,
)
from .merge_test import (
    Candidate as Candidate, Merge as Merge, MergeConfig as MergeConfig, Merging as Merging, Takeover as Takeover,
    Trials as Trials, candidates as candidates, pairs_of as pairs_of,
)
