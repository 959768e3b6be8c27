from . import checkpoint_files as checkpoint_files
from . import config as config
from . import cost_forecast as cost_forecast
from . import diagnosis as diagnosis
from . import drafts as drafts
from . import ecology as ecology
from . import knobs as knobs
from . import lifecycle as lifecycle
from . import memory as memory
from . import parts as parts
from . import price_equation as price_equation
from . import record as record
from . import removal as removal
from . import run_folder as run_folder
from . import serving as serving
from . import sessions as sessions
from . import state as state
from . import succession as succession
from . import variation as variation
from .variation import (
    OPERATORS as OPERATORS, Offspring as Offspring, VariationConfig as VariationConfig, crossover as crossover,
    direction as direction, gaussian as gaussian, limits as limits, make_offspring as make_offspring,
    mutate_traits as mutate_traits, narrow as narrow, rescale as rescale, silence as silence, widen as widen,
)
from .lifecycle import (
    Demography as Demography, LINEAGE as LINEAGE,
)
from .memory import (
    Examples as Examples, Memory as Memory, MemoryConfig as MemoryConfig, Prompt as Prompt, Solved as Solved,
    question_of as question_of, with_examples as with_examples,
)
from .parts import (
    Bill as Bill, Graded as Graded, Part as Part, PartConfig as PartConfig, SOCIETY as SOCIETY, Society as Society,
    checked_parts as checked_parts, part_named as part_named, register_part as register_part,
)
from .config import (
    EcologyConfig as EcologyConfig, PRESETS as PRESETS, RENAMED as RENAMED, changed_config as changed_config,
    checked_config as checked_config, load_config as load_config, merged as merged, preset_of as preset_of,
    settings as settings, validation_line as validation_line,
)
from .record import (
    Generation as Generation, TICKER as TICKER, alone_of as alone_of, hashes_of as hashes_of,
    numbers_of as numbers_of, put_tasks as put_tasks, row_text as row_text,
)
from .diagnosis import (
    CASES as CASES, DIFFER as DIFFER, Diagnosis as Diagnosis, EarlyStopping as EarlyStopping, LAST as LAST,
    PATIENCE as PATIENCE, READ as READ, Seen as Seen, by_cell as by_cell, diagnose as diagnose, inert as inert,
    seen_in as seen_in, wrong_generations as wrong_generations,
)
from .knobs import (
    Applied as Applied, Controls as Controls, Example as Example, KNOBS as KNOBS, Knob as Knob,
    as_prompt as as_prompt,
)
from .price_equation import (
    Descent as Descent, Heredity as Heredity, Inheritance as Inheritance, PriceTerms as PriceTerms,
    heredity as heredity, inheritance as inheritance, price_terms as price_terms, reliability_of as reliability_of,
    true_variance as true_variance,
)
from .removal import (
    Met as Met, absence as absence, agreeing as agreeing, contributions as contributions, expendable as expendable,
)
from .serving import (
    Service as Service, Serving as Serving, Settled as Settled, asked as asked, billed as billed, chosen as chosen,
    graded as graded, scored as scored, settle as settle, to_score as to_score,
)
from .succession import (
    Census as Census, Luck as Luck, Succession as Succession, Turnover as Turnover, drawn_parents as drawn_parents,
    parted as parted, shared as shared,
)
from .state import (
    PARTS as PARTS, Snapshot as Snapshot, births_of as births_of, restore as restore, state_of as state_of,
)
from .ecology import (
    Ecology as Ecology,
)
from .cost_forecast import (
    Blueprint as Blueprint, HostProfile as HostProfile, PROFILES as PROFILES, blueprint as blueprint,
    forecast as forecast, kept_for_learning as kept_for_learning, priced_for as priced_for,
    profile_of as profile_of,
)
from .run_folder import (
    COLUMNS as COLUMNS, Run as Run, TABLES as TABLES, begin as begin, config_differences as config_differences,
    config_hash as config_hash, differences as differences, frame as frame, read as read,
)
from .checkpoint_files import (
    checkpoints as checkpoints, prune as prune, read_births as read_births, read_checkpoint as read_checkpoint,
    read_manifest as read_manifest, verified as verified, write_checkpoint as write_checkpoint,
)
from .sessions import (
    Session as Session, begin_session as begin_session, check_record as check_record, check_tables as check_tables,
    check_unedited as check_unedited, colony as colony, colony_births as colony_births,
    colony_ecology as colony_ecology, history_of as history_of, resume_session as resume_session,
)
from .drafts import (
    Draft as Draft, load_ecology as load_ecology, save_ecology as save_ecology,
)
