from . import ledger as ledger
from .ledger import (
    ACCOUNTS as ACCOUNTS, Audit as Audit, COST_VERSION as COST_VERSION, EconomyConfig as EconomyConfig,
    Ledger as Ledger, Prices as Prices, Reward as Reward, Season as Season, answer_cost as answer_cost,
    effective_population as effective_population, gini as gini, penalty as penalty, revenue as revenue,
    reward as reward, roi as roi, season as season,
)
