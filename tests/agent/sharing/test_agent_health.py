"""What is said of each agent's replayed steps equals plain loops over them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ritornello.agent.algorithms.impala import Impala, ImpalaConfig
from ritornello.agent.algorithms.passes import look_at
from ritornello.agent.algorithms.rows import learnable_rows
from ritornello.replay.item import OWN
from tests.agent.builders import make_batch, make_small_model

AGENTS = {OWN: "agent_1", 0: "agent_0", 2: "agent_2"}


@pytest.mark.parametrize("kind", ["implied", "none"])
def test_figures_of_each_agent_are_those_of_its_replayed_steps(kind: str) -> None:
    model = make_small_model()
    batch = make_batch(size=9, seed=4)  # the first five columns are new
    agent = torch.tensor([OWN, OWN, OWN, OWN, OWN, OWN, 0, 0, OWN])
    batch = replace(batch, agent=agent)
    algorithm = Impala(ImpalaConfig(trust_region=kind, trust_threshold=0.15))
    algorithm.agents = AGENTS
    metrics = algorithm.loss(model, batch).metrics

    seen = look_at(model, batch)
    valid, _ = learnable_rows(batch)
    distance = seen.pi.implied_kl(seen.mu, algorithm.config.rho_bar)
    kl = seen.mu.kl(seen.pi)
    for number, name in AGENTS.items():
        trusted, total, steps, columns = 0, 0.0, 0, 0
        for b in range(batch.size):
            if batch.is_online[b] or agent[b] != number:
                continue
            columns += 1
            for t in range(batch.steps):
                if valid[t, b]:
                    steps += 1
                    total += kl[t, b].item()
                    trusted += int(distance[t, b] < 0.15)
        got = {key: metrics.get(f"share/{name}/{key}") for key in ("drawn_fraction",)}
        assert got["drawn_fraction"].item() == pytest.approx(columns / 4)
        if not columns:
            assert metrics[f"share/{name}/kl_behaviour_target"].isnan()
            continue
        assert metrics[f"share/{name}/kl_behaviour_target"].item() == pytest.approx(total / steps)
        if kind == "implied":
            assert 0 < trusted < steps  # or the test would say nothing
            assert metrics[f"share/{name}/trusted_fraction"].item() == pytest.approx(
                trusted / steps
            )
        else:
            assert f"share/{name}/trusted_fraction" not in metrics


def test_an_agent_alone_has_no_such_figures() -> None:
    metrics = Impala(ImpalaConfig()).loss(make_small_model(), make_batch()).metrics
    assert not [name for name in metrics if name.startswith("share/")]


def test_agents_change_nothing_of_the_loss() -> None:
    model, batch = make_small_model(), make_batch(size=6)
    foreign = replace(batch, agent=torch.tensor([OWN, OWN, OWN, 0, 2, 0]))
    algorithm = Impala(ImpalaConfig(trust_region="implied"))
    plain = algorithm.loss(model, batch).total
    algorithm.agents = AGENTS
    assert algorithm.loss(model, foreign).total == plain
