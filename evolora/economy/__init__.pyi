from . import ledger as ledger
from . import market as market
from . import prices as prices
from .prices import (
    COST_VERSION as COST_VERSION, EconomyConfig as EconomyConfig, Prices as Prices, Reward as Reward,
    Season as Season, answer_cost as answer_cost, effective_population as effective_population, gini as gini,
    nonnegative as nonnegative, penalty as penalty, revenue as revenue, reward as reward, roi as roi,
    season as season,
)
from .ledger import (
    ACCOUNTS as ACCOUNTS, Audit as Audit, Ledger as Ledger,
)
from .market import (
    Book as Book, Market as Market, MarketConfig as MarketConfig, likelihood_of as likelihood_of,
)
