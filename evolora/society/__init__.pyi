from . import archive as archive
from .archive import (
    Archive as Archive, ArchiveConfig as ArchiveConfig, Asked as Asked, MEASURES as MEASURES, Played as Played,
    Sleeper as Sleeper, cells_of as cells_of, largest as largest, measured as measured,
)
