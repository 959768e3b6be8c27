from . import report as report
from . import scoring as scoring
from . import search as search
