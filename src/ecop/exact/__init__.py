"""Ground truth: tabular CMDPs, their exact optimum, and the paper's Algorithm 1.

Everything here is NumPy and SciPy in float64, except `learned`, which evaluates trained
policies and is imported on its own.
"""

from ecop.exact.cmdp import TabularCMDP, tabular_cmdp
from ecop.exact.lp import (
    Frontier,
    Infeasible,
    Solution,
    frontier,
    smallest_cost,
    solve,
)
from ecop.exact.problems import PROBLEMS, random_cmdp
from ecop.exact.values import (
    Unconstrained,
    Values,
    backward_induction,
    evaluate_exact,
    occupancy_of,
    value_functions,
)

__all__ = [
    "PROBLEMS",
    "Frontier",
    "Infeasible",
    "Solution",
    "TabularCMDP",
    "Unconstrained",
    "Values",
    "backward_induction",
    "evaluate_exact",
    "frontier",
    "occupancy_of",
    "random_cmdp",
    "smallest_cost",
    "solve",
    "tabular_cmdp",
    "value_functions",
]
