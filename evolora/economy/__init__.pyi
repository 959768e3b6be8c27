from . import book as book
from . import market as market
from . import prices as prices
from .prices import (
    COST_VERSION as COST_VERSION, EconomyConfig as EconomyConfig, Reward as Reward, answer_cost as answer_cost,
    effective_population as effective_population, gini as gini, nonnegative as nonnegative, penalty as penalty,
    revenue as revenue, reward as reward, roi as roi,
)
from .book import (
    Book as Book, COPY as COPY, REASONS as REASONS,
)
from .market import (
    Audit as Audit, Market as Market, MarketConfig as MarketConfig, foremost as foremost,
    likelihood_of as likelihood_of,
)
