import pytest
import torch

from research.ppo import Settings, gae, train


def plain_gae(reward, terminated, valid, values, gamma, lambda_):
    """One game: the sum of (gamma lambda)^k delta, until it ends or a reset row is met."""
    advantages = []
    for start in range(len(reward)):
        total, weight = 0.0, 1.0
        for t in range(start, len(reward)):
            if not valid[t]:
                break
            next_value = 0.0 if terminated[t] else values[t + 1]
            total += weight * (reward[t] + gamma * next_value - values[t])
            if terminated[t]:
                break
            weight *= gamma * lambda_
        advantages.append(total)
    return advantages


def test_the_advantages_equal_plain_loops():
    draw = torch.Generator().manual_seed(3)
    reward, values = torch.randn(9, 4, generator=draw), torch.randn(10, 4, generator=draw)
    terminated = torch.rand(9, 4, generator=draw) < 0.2
    valid = torch.rand(9, 4, generator=draw) > 0.2
    found = gae(reward, terminated, valid, values, 0.9, 0.8)
    for n in range(4):
        parts = (x[:, n].tolist() for x in (reward, terminated, valid, values))
        assert found[:, n].tolist() == pytest.approx(plain_gae(*parts, 0.9, 0.8), abs=1e-5)


def test_a_short_run_leaves_the_file_of_its_command(tmp_path):
    path = train(Settings(steps=64, games=2, unroll=16, game="PongNoFrameskip-v4"), tmp_path)
    assert path.name == "ppo_PongNoFrameskip-v4_seed1.csv"
    assert '"finished": true' in path.read_text("utf-8")
    assert "--game=PongNoFrameskip-v4" in path.read_text("utf-8")
