import pytest
import torch


@pytest.fixture(autouse=True)
def _fixed_torch_generator():
    """The tests run in random order, so each starts torch's global generator anew."""
    torch.manual_seed(0)
