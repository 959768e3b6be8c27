from . import island as island
from . import islands as islands
from . import islands_folder as islands_folder
from . import islands_view as islands_view
from . import migrants as migrants
from . import migration as migration
from . import on_ray as on_ray
from . import plan as plan
from .migrants import (
    Booking as Booking, Money as Money, Papers as Papers, Ticket as Ticket, contents as contents,
    fingerprint_of as fingerprint_of, largest as largest, pack as pack, unpack as unpack,
)
from .migration import (
    Departure as Departure, Flows as Flows, Migration as Migration, MigrationConfig as MigrationConfig,
)
from .islands_folder import (
    PLAN as PLAN, STATUS as STATUS, is_islands as is_islands, place_of as place_of, status_of as status_of,
)
from .plan import (
    IslandsConfig as IslandsConfig, Plan as Plan, TOPOLOGIES as TOPOLOGIES, check_epochs as check_epochs,
    checked_islands as checked_islands, made_plan as made_plan, read_plan as read_plan, write_plan as write_plan,
)
from .island import (
    Island as Island, Report as Report,
)
from .islands import (
    Audit as Audit, Crew as Crew, Errand as Errand, Islands as Islands, OneAfterTheOther as OneAfterTheOther,
    begin_islands as begin_islands, resume_islands as resume_islands,
)
from .on_ray import (
    OnRay as OnRay, islands_on_ray as islands_on_ray, put_together as put_together, slots as slots,
    taken_apart as taken_apart,
)
from .islands_view import (
    IslandsPanel as IslandsPanel, chart_crossings as chart_crossings, chart_islands as chart_islands,
    chart_migrants as chart_migrants, crossings as crossings, curves as curves, drawn_islands as drawn_islands,
    islands_report as islands_report, islands_table as islands_table,
)
