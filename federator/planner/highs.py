"""HiGHS, the solver of linear and mixed-integer programs: an extra, imported where it is needed."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federator.errors import InvalidRequest
from federator.planner.warehouse import F64

Int32 = NDArray[np.int32]


def _highspy() -> Any:
    try:
        return importlib.import_module("highspy")
    except ImportError as error:
        raise InvalidRequest(
            "the solver needs highspy, which is not installed here; install federator[planner]"
        ) from error


def new_highs() -> Any:
    """An empty model, which prints nothing and keeps to one thread.

    Raises:
        InvalidRequest: HiGHS is not installed.
    """
    model = _highspy().Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("threads", 1)
    return model


def whole() -> Any:
    """The type of a column that takes whole numbers only."""
    return _highspy().HighsVarType.kInteger


def solve_lp(
    costs: F64, rows: tuple[F64, F64], columns: tuple[Int32, Int32, F64]
) -> tuple[float, F64] | None:
    """The least cost of columns from 0 on, and the duals of the rows; None: no optimum was found.

    Args:
        costs: of the columns.
        rows: their lower and upper ends; infinite where there is none.
        columns: where each begins in the next two, and its rows with their factors.

    Raises:
        InvalidRequest: HiGHS is not installed.
    """
    highspy = _highspy()
    model, lp = new_highs(), highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(costs), len(rows[0])
    lp.col_cost_ = costs
    lp.col_lower_, lp.col_upper_ = np.zeros(len(costs)), np.full(len(costs), np.inf)
    lp.row_lower_, lp.row_upper_ = rows
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = columns
    model.passModel(lp)
    model.run()
    if model.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return float(model.getInfo().objective_function_value), np.array(model.getSolution().row_dual)
