from dataclasses import fields, replace

import pytest
import torch

from ritornello.core.errors import ShapeError
from tests.agent.builders import make_batch, make_spec

MASKED = make_spec(masked=True)


@pytest.mark.parametrize("name", [f.name for f in fields(make_batch(MASKED))])
def test_a_batch_refuses_a_field_of_another_shape_by_name(name):
    batch = make_batch(MASKED)
    wrong = torch.cat([getattr(batch, name)] * 2)
    # action is what T and B are read from, so there it is the others that do not fit.
    with pytest.raises(ShapeError, match="obs" if name == "action" else f"^{name} "):
        replace(batch, **{name: wrong})
    if name in ("reward", "terminated", "first", "last_reward"):  # which would broadcast
        with pytest.raises(ShapeError, match=f"^{name} "):
            replace(batch, **{name: getattr(batch, name).unsqueeze(-1)})


def test_a_reset_row_is_the_step_before_a_first_row():
    batch = make_batch()
    assert (batch.steps, batch.size) == (5, 4)
    assert batch.first[2, 0]
    assert batch.reset_row[1, 0]
    assert batch.reset_row.sum() == batch.first.sum()
