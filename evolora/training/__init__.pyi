from . import courses as courses
from . import examples as examples
from . import jobs as jobs
from . import live as live
from . import passes as passes
from . import steps as steps
from . import train as train
from . import trained as trained
from . import training as training
from .examples import (
    Encoded as Encoded, Example as Example, LONGEST_LINE as LONGEST_LINE, check_apart as check_apart,
    encode_examples as encode_examples, is_cell as is_cell, read_examples as read_examples,
    split_examples as split_examples,
)
from .jobs import (
    FILE_SETTINGS as FILE_SETTINGS, Job as Job, JobFile as JobFile, MOST_JOBS as MOST_JOBS,
    expand_jobs as expand_jobs, read_jobs as read_jobs,
)
from .passes import (
    Below as Below, Fleet as Fleet, Gradients as Gradients, Passes as Passes, Text as Text,
)
from .steps import (
    AdamW as AdamW, Lesson as Lesson, Speakers as Speakers, batch_of as batch_of, of_completions as of_completions,
    of_pairs as of_pairs, of_rewards as of_rewards, reward_of as reward_of, seeds_of as seeds_of,
    steps_of as steps_of,
)
from .courses import (
    ALIVE as ALIVE, Course as Course, Progress as Progress, Reader as Reader, State as State,
)
from .training import (
    Training as Training,
)
from .train import (
    CHECKPOINT as CHECKPOINT, LOSSES as LOSSES, SAVE_EVERY as SAVE_EVERY, identity as identity,
    resume_training as resume_training, run_training as run_training, save_training as save_training,
    train_adapters as train_adapters,
)
from .trained import (
    ecology_of as ecology_of, export_adapter as export_adapter, export_all as export_all,
    merged_adapter as merged_adapter, population_of as population_of, score_adapters as score_adapters,
)
from .live import (
    chart_losses as chart_losses, training_html as training_html, watched as watched,
)
