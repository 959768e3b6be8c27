from . import analysis as analysis
from . import assimilation as assimilation
from . import attention as attention
from . import cli as cli
from . import ecology as ecology
from . import economy as economy
from . import evaluation as evaluation
from . import experiments as experiments
from . import host as host
from . import islands as islands
from . import lab as lab
from . import organelles as organelles
from . import society as society
from . import tasks as tasks
from . import training as training
from . import utils as utils
from .ecology import (
    Ecology as Ecology, EcologyConfig as EcologyConfig, Session as Session, begin_session as begin_session,
    load_config as load_config, resume_session as resume_session,
)
from .host import (
    Host as Host, load_host as load_host,
)
from .organelles import (
    Organelle as Organelle, Population as Population, Traits as Traits,
)
from .economy import (
    Market as Market,
)
from .tasks import (
    Cell as Cell, Family as Family, Grade as Grade, Task as Task, draw_tasks as draw_tasks,
    register_family as register_family,
)
from .evaluation import (
    Evaluation as Evaluation, ask as ask, calibrate as calibrate, evaluate as evaluate, export as export,
    fit_router as fit_router,
)
from .analysis import (
    RunData as RunData, dashboard as dashboard, list_runs as list_runs, load as load, report as report,
)
from .lab import (
    Lab as Lab,
)
from .training import (
    export_all as export_all, train_adapters as train_adapters,
)
__version__: str
