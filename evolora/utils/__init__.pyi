from . import cluster as cluster
from . import deprecation as deprecation
from . import files as files
from . import manifest as manifest
from . import pool as pool
from . import randomness as randomness
from . import registry as registry
from . import statistics as statistics
from . import terminal as terminal
from . import text as text
from . import underway as underway
from .randomness import (
    checked_seed as checked_seed, seed_of as seed_of, stream as stream,
)
from .files import (
    DEEPEST as DEEPEST, about as about, aim_of as aim_of, append as append, check_new_folder as check_new_folder,
    check_writable as check_writable, checked_file as checked_file, decoded as decoded, digest as digest,
    first_bytes as first_bytes, in_home as in_home, locked as locked, new_folder as new_folder,
    note_aim as note_aim, open_file as open_file, owner as owner, parse_json as parse_json, read_file as read_file,
    read_json as read_json, read_lines as read_lines, read_yaml as read_yaml, remove_folder as remove_folder,
    sweep as sweep, sync as sync, taken as taken, truncate as truncate, write_whole as write_whole,
)
from .registry import (
    NAME as NAME, Parts as Parts, fingerprint as fingerprint,
)
from .statistics import (
    Interval as Interval, MAX_FLIPS as MAX_FLIPS, bootstrap as bootstrap, holm as holm, iqm as iqm,
    paired as paired, power_pairs as power_pairs, ratio as ratio, sign_flip as sign_flip, wilson as wilson,
)
from .terminal import (
    Bars as Bars, EVERY as EVERY, MAX_THREADS as MAX_THREADS, Pace as Pace, STEERING as STEERING,
    Tracker as Tracker, bar_of as bar_of, brief_time as brief_time, drawn as drawn, drawn_again as drawn_again,
    exists as exists, fit_text as fit_text, flush_streams as flush_streams, listed as listed, log as log,
    meanwhile as meanwhile, new_file as new_file, new_folder_for as new_folder_for, open_streams as open_streams,
    progress as progress, show as show, stop_softly as stop_softly, tracked as tracked,
    uninterrupted as uninterrupted, visible as visible, widen as widen,
)
from .pool import (
    TooMuch as TooMuch, belong as belong, each as each, last_line as last_line, run_child as run_child,
    try_forked as try_forked,
)
from .text import (
    escape as escape, fenced as fenced, panics_as_errors as panics_as_errors,
)
from .cluster import (
    agree as agree, as_here as as_here, cluster_each as cluster_each, facts as facts, first_done as first_done,
    head_answers as head_answers, join_cluster as join_cluster, machines as machines, need_head as need_head,
    unlike as unlike,
)
from .underway import (
    Underway as Underway, heard as heard, tell as tell,
)
from .deprecation import (
    Deprecation as Deprecation, EvoloraDeprecationWarning as EvoloraDeprecationWarning, KNOWN as KNOWN,
    deprecated as deprecated, moved as moved, outlived as outlived,
)
from .manifest import (
    Content as Content, Entry as Entry, Manifest as Manifest, check_manifest as check_manifest,
    check_parts as check_parts, entries as entries, fault as fault, sealed as sealed,
)
