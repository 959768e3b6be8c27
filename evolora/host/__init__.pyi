from . import adapters as adapters
from . import downloads as downloads
from . import engine as engine
from . import fast_layers as fast_layers
from . import flops as flops
from . import gguf as gguf
from . import habit_host as habit_host
from . import leftovers as leftovers
from . import mechanisms as mechanisms
from . import model as model
from . import model_folder as model_folder
from . import names as names
from . import precision as precision
from . import pretraining as pretraining
from . import sampling as sampling
from . import saved_state as saved_state
from . import templates as templates
from . import tokenizer_trial as tokenizer_trial
from .fast_layers import (
    Beginnings as Beginnings, Causal as Causal, Decoder as Decoder, Glance as Glance, Grid as Grid,
    LAYOUTS as LAYOUTS, Prefix as Prefix, Prefixes as Prefixes, Rest as Rest, reads_whole as reads_whole,
    supported as supported, together as together,
)
from .flops import (
    FlopMeter as FlopMeter, WholeMeter as WholeMeter,
)
from .adapters import (
    ALL_LINEAR as ALL_LINEAR, AdapterStack as AdapterStack, Factors as Factors, INERT_SETTINGS as INERT_SETTINGS,
    LLAMA_MAPS as LLAMA_MAPS, RowAdapters as RowAdapters, attached as attached, blocks_of as blocks_of,
    check_factors as check_factors, logits_by_peft as logits_by_peft, names_here as names_here,
    read_peft as read_peft, read_peft_host as read_peft_host, read_tensors as read_tensors, shape_of as shape_of,
    target_linears as target_linears, write_peft as write_peft,
)
from .engine import (
    Company as Company, LeanRows as LeanRows, ModuleRows as ModuleRows, Plan as Plan, Record as Record,
    SEATS as SEATS, WholeRows as WholeRows, buckets as buckets, company_of as company_of, session as session,
)
from .sampling import (
    Authors as Authors, Below as Below, Group as Group, KEPT as KEPT, Kept as Kept, Samples as Samples,
    Trace as Trace, choose as choose, copies_of as copies_of, groups_of as groups_of, sample as sample,
    tempered as tempered, trace as trace, uniforms as uniforms,
)
from .downloads import (
    KNOWN as KNOWN, Known as Known, OnWay as OnWay, SHIPPED as SHIPPED, cache_folder as cache_folder,
    check_host_room as check_host_room, describe as describe, fetch as fetch, fetched as fetched, found as found,
    known as known, known_file as known_file, room as room, sound as sound, take_member as take_member,
    without_hub as without_hub,
)
from .leftovers import (
    check_config as check_config, check_keys as check_keys, check_loaded as check_loaded,
    check_names as check_names, check_no_adapter as check_no_adapter, check_pre_tokenizer as check_pre_tokenizer,
    mapped_keys as mapped_keys, rotation as rotation, rotation_of_factors as rotation_of_factors,
    set_rotation as set_rotation, unmapped_tensors as unmapped_tensors,
)
from .model_folder import (
    check_counts as check_counts, check_folder as check_folder, check_weights as check_weights,
)
from .gguf import (
    Header as Header, Tensor as Tensor, dequantise as dequantise, gguf_config as gguf_config, is_gguf as is_gguf,
    kept as kept, plain_folder as plain_folder, read_header as read_header, write_tiny_gguf as write_tiny_gguf,
)
from .names import (
    EMBEDDED as EMBEDDED, HUB as HUB, host_id as host_id, host_source as host_source, public_name as public_name,
)
from .tokenizer_trial import (
    read_tokenizer as read_tokenizer,
)
from .precision import (
    host_device as host_device, host_dtype as host_dtype, margin_of as margin_of,
    multiplies_bfloat16 as multiplies_bfloat16,
)
from .saved_state import (
    Number as Number, check_tensors as check_tensors, plain_number as plain_number, read_number as read_number,
    read_state as read_state, write_state as write_state,
)
from .templates import (
    MARK as MARK, Said as Said, check_repeats as check_repeats, check_template as check_template,
    control_tokens as control_tokens, end_of_turn as end_of_turn, frozen as frozen, messages as messages,
    ordered_ends as ordered_ends, quoted as quoted, read as read, rendered as rendered,
    system_has_role as system_has_role, tokens_behind as tokens_behind, tokens_of as tokens_of,
    turns_of as turns_of, written as written,
)
from .model import (
    ARCHITECTURES as ARCHITECTURES, Generation as Generation, Host as Host, Origin as Origin,
    byte_tokenizer as byte_tokenizer, check_room as check_room, generate as generate, load_host as load_host,
    read_config as read_config, reading_model as reading_model, recorded_host as recorded_host,
    tiny_host as tiny_host, use_threads as use_threads,
)
from .pretraining import (
    ASSISTANT as ASSISTANT, ATTENTION as ATTENTION, CHAT_TEMPLATE as CHAT_TEMPLATE, CONVICTION as CONVICTION,
    DEPTHS as DEPTHS, END as END, JOINTS as JOINTS, PAD as PAD, PretrainingConfig as PretrainingConfig,
    RIGHT as RIGHT, UNKNOWN as UNKNOWN, USER as USER, build_tokenizer as build_tokenizer,
    draw_document as draw_document, loss_of as loss_of, new_model as new_model, pack as pack, pretrain as pretrain,
    read_skills as read_skills, skill_table as skill_table, solve as solve, unpack as unpack,
    write_skills as write_skills,
)
from .habit_host import (
    HABIT_CELLS as HABIT_CELLS, HABIT_DEPTHS as HABIT_DEPTHS, HABIT_FOCUS as HABIT_FOCUS,
    HabitConfig as HabitConfig, habit_table as habit_table, with_conventions as with_conventions,
)
