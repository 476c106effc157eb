import pytest
import torch


@pytest.fixture(autouse=True)
def _fixed_torch_generator():
    """The tests run in random order, so each starts torch's global generator anew."""
    torch.manual_seed(0)


@pytest.fixture
def refuse_questions(monkeypatch):
    """Let tensors refuse to tell Python a number from now on, as on a GPU that is recording."""

    def start():
        def refused(*_):
            raise RuntimeError("operation not permitted when stream is capturing")

        for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__"):
            monkeypatch.setattr(torch.Tensor, name, refused)

    return start


@pytest.fixture
def pools():
    """Every pool that is put here is stopped in the end."""
    pools = []
    yield pools
    for pool in pools:
        pool.stop(3.0)


@pytest.fixture
def make_process_pool(pools):
    """Pools of the workers of a blueprint, and of its server if it has one."""
    from ritornello.agent.pools.pool import ProcessPool
    from tests.agent.test_rollout import make_board

    def make(blueprint, slots=2, **options):
        is_served = blueprint.choices.inference == "server"
        pool = ProcessPool(
            blueprint.workers(), make_board(blueprint), slots=slots, max_restarts=3,
            server=blueprint.server() if is_served else None, **options,
        )  # fmt: skip
        pools.append(pool)
        pool.start()
        return pool

    return make
