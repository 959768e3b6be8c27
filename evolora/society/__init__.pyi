from . import allocation as allocation
from . import archive as archive
from . import channel as channel
from . import colony as colony
from . import guard as guard
from . import hazard as hazard
from . import morphogenesis as morphogenesis
from . import policy as policy
from . import pot as pot
from . import rater as rater
from .archive import (
    Archive as Archive, ArchiveConfig as ArchiveConfig, Asked as Asked, MEASURES as MEASURES, Played as Played,
    Sleeper as Sleeper, cells_of as cells_of, largest as largest, measured as measured,
)
from .allocation import (
    Allocation as Allocation, AllocationConfig as AllocationConfig, Auction as Auction, Even as Even,
    Sharing as Sharing, Thompson as Thompson, auctioned as auctioned, traded as traded,
)
from .guard import (
    Guard as Guard, GuardConfig as GuardConfig, capped as capped, levelled as levelled,
)
from .morphogenesis import (
    Morphogenesis as Morphogenesis, MorphogenesisConfig as MorphogenesisConfig, grown as grown, rank_of as rank_of,
    shrunk as shrunk,
)
from .hazard import (
    Hazard as Hazard, HazardConfig as HazardConfig, levied as levied,
)
from .channel import (
    Board as Board, Cache as Cache, Channel as Channel, ChannelConfig as ChannelConfig, Latent as Latent,
    Post as Post, Read as Read, nearest as nearest, shuffled as shuffled, similar as similar, trigrams as trigrams,
)
from .colony import (
    ASK as ASK, Colonies as Colonies, Colony as Colony, ColonyConfig as ColonyConfig, Probe as Probe,
    Verdict as Verdict, held_likely as held_likely, picked as picked, team_exam as team_exam, voted as voted,
)
from .policy import (
    Policies as Policies, Policy as Policy, PolicyConfig as PolicyConfig, QUESTION as QUESTION,
    constrained as constrained, fields_of as fields_of, parsed as parsed,
)
from .pot import (
    Pot as Pot, PotConfig as PotConfig, subsidies as subsidies,
)
from .rater import (
    Rater as Rater, RaterConfig as RaterConfig,
)
