"""Figures of a private report, for any names that a table may have."""

import io

import numpy as np
import pytest

from drjax.data.schema import Column, Schema
from drjax.releases import synthetic_report


@pytest.mark.parametrize("name", ["a$b", "$", "$\\frac{", "_^%", "$x_1$", "a\\$b", "$$"])
def test_columns_and_categories_of_any_name_are_drawn(name):
    columns = (
        Column(name=name, kind="number", lower=0.0, upper=1.0),
        Column(name=f"{name} too", kind="category", categories=(name, f"{name}$", "c")),
    )
    x = np.column_stack([np.linspace(0, 1, 6), np.eye(3)[[0, 1, 2, 0, 1, 0]]])
    figure = synthetic_report._columns(Schema(columns=columns), (x, None), (x, None))
    figure.savefig(io.BytesIO(), format="png")
    assert figure.axes[0].get_title() == name.replace("$", r"\$")
