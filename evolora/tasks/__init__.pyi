from . import automata as automata
from . import curriculum as curriculum
from . import dates_and_units as dates_and_units
from . import families as families
from . import family as family
from . import forms as forms
from . import language as language
from . import numbers as numbers
from . import question_set as question_set
from . import regex_puzzles as regex_puzzles
from . import regexes as regexes
from . import rewards as rewards
from . import splits as splits
from . import symbolic as symbolic
from . import task_sets as task_sets
from . import worlds as worlds
from .numbers import (
    MAX_POWER as MAX_POWER, Number as Number, last_number_in as last_number_in, number_of as number_of,
    same_number as same_number,
)
from .family import (
    Family as Family, Grade as Grade, MAX_DEPTH as MAX_DEPTH, MAX_NESTING as MAX_NESTING, MAX_REPLY as MAX_REPLY,
    MAX_TEXT as MAX_TEXT, Task as Task, final_line as final_line, last_json as last_json, last_match as last_match,
    last_number as last_number, load_json as load_json, pick as pick, plain_line as plain_line,
    whole_number as whole_number, worth_of as worth_of,
)
from .symbolic import (
    CodeFormat as CodeFormat, JsonRepair as JsonRepair, Logic as Logic, Math as Math, MultiStep as MultiStep,
    Sequence as Sequence, Sort as Sort, WORDS as WORDS, WordCount as WordCount, in_marks as in_marks,
    last_marks as last_marks, marks_of as marks_of, other_marks as other_marks,
)
from .language import (
    After as After, CITIES as CITIES, CLASSES as CLASSES, Codes as Codes, Fields as Fields, JOBS as JOBS,
    LANGUAGE as LANGUAGE, NAMES as NAMES, Order as Order, Place as Place, Plural as Plural, Reverse as Reverse,
    Words as Words, Writing as Writing, some as some,
)
from .dates_and_units import (
    Amount as Amount, DAYS as DAYS, Dates as Dates, MONTHS as MONTHS, Minutes as Minutes, Most as Most,
    QUANTITIES as QUANTITIES, Ranking as Ranking, Total as Total, Units as Units, Weekday as Weekday,
    in_words as in_words, ordinal as ordinal,
)
from .regexes import (
    LETTERS as LETTERS, MAX_PATTERN as MAX_PATTERN, Recognition as Recognition, Synthesis as Synthesis,
    compiles as compiles, draw_pattern as draw_pattern, expand as expand, matches as matches, mismatch as mismatch,
    spell as spell,
)
from .automata import (
    Automaton as Automaton, MAX_LENGTH as MAX_LENGTH, MAX_POSITIONS as MAX_POSITIONS, MAX_READS as MAX_READS,
    MAX_STATES as MAX_STATES, accepts as accepts, difference as difference, equivalent as equivalent,
    parsed as parsed,
)
from .regex_puzzles import (
    Debug as Debug, Explain as Explain, Mutation as Mutation, PUZZLES as PUZZLES, QUANTIFIERS as QUANTIFIERS,
    Refactor as Refactor, edited as edited, in_one_order as in_one_order, sentence as sentence,
)
from .splits import (
    STREAMS as STREAMS, identified as identified, stream_of as stream_of,
)
from .families import (
    CELLS as CELLS, Cell as Cell, FAMILIES as FAMILIES, ID_CELLS as ID_CELLS, MAX_PROMPT as MAX_PROMPT,
    NATURAL as NATURAL, OOD_CELLS as OOD_CELLS, OOD_DEPTH as OOD_DEPTH, OOD_FAMILIES as OOD_FAMILIES,
    cell_hashes as cell_hashes, conventions as conventions, family_hash as family_hash,
    family_named as family_named, grade as grade, nearly as nearly, register_family as register_family,
    under as under, usual as usual,
)
from .task_sets import (
    MAX_TRIES as MAX_TRIES, chance as chance, corrected as corrected, count_mode as count_mode,
    draw_tasks as draw_tasks, mode_share as mode_share, read_tasks as read_tasks, sample_tasks as sample_tasks,
    store_modes as store_modes, task_hashes as task_hashes, write_tasks as write_tasks,
)
from .forms import (
    FORMS as FORMS, Form as Form, SYSTEM as SYSTEM, System as System, TODAY as TODAY, dated as dated,
    form_named as form_named,
)
from .curriculum import (
    Curriculum as Curriculum, CurriculumConfig as CurriculumConfig,
)
from .worlds import (
    SCHEDULES as SCHEDULES, World as World, WorldConfig as WorldConfig, absent as absent, drawn as drawn,
    new as new, recurring as recurring, register_schedule as register_schedule, skewed as skewed,
)
from .question_set import (
    MOST as MOST, QuestionSet as QuestionSet, check_text_alone as check_text_alone, message_text as message_text,
    near_duplicates as near_duplicates,
)
from .rewards import (
    Verifier as Verifier, as_reward as as_reward, from_reward as from_reward, reward_rows as reward_rows,
)
