"""What cannot be trained is found before a run folder exists, by arithmetic, in seconds."""

import time

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from ritornello.agent.session import prepare
from ritornello.core.errors import ConfigError
from tests.wrappers.lying import registered


class _Sized(gymnasium.Env):
    """Shows zeros, and takes anything."""

    def __init__(self, seen, acted):
        self.observation_space, self.action_space = seen, acted

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._zero(), {}

    def step(self, action):
        return self._zero(), 0.0, False, False, {}

    def _zero(self):
        return 0 if isinstance(self.observation_space, Discrete) else np.zeros(4, np.float32)


REPLAY = '--replay_parameters=[{"type": "queue", "capacity": 100000, "sample_ratio": 1}]'
FEW, SHOWN = Discrete(2), Box(-1, 1, (4,), np.float32)


def prepare_sized(seen, acted, folder, *flags):
    with registered(lambda: _Sized(seen, acted)) as config:
        return prepare(
            [
                *(f"--env={config.env_id}", "--worker_count=1", "--envs_per_worker=1"),
                *(f"--results_dir={folder / 'results'}", *flags),
            ]
        )


@pytest.mark.parametrize(
    "flags",
    [
        ["--env=PongNoFrameskip-v4", '--env_kwargs={"size": 1}'],
        ["--env=PongNoFrameskip-v4", '--env_kwargs={"mode": 99}'],
        ["--env=CartPole-v1", '--env_kwargs={"size": 1}'],
        ["--env=CartPole-v1", "--env_backend=ale_vector"],
        ["--env=PongNoFrameskip-v4", "--env_backend=ale_vector", "--reproducible=True"],
        ["--env=PongNoFrameskip-v4,BreakoutNoFrameskip-v4", "--env_shares=1,0,1"],
        ["--env=CartPole-v1", "--replay_parameters=[{type: queue, capacity: 10**12}]"],
        ["--env=CartPole-v1", "--feature_out_layer_size=100000000"],
        ["--env=CartPole-v1", "--r_f_steps=1000000000"],
    ],
)
def test_no_folder_is_left_by_a_command_that_cannot_be_honoured(flags, tmp_path):
    with pytest.raises(ConfigError):
        prepare([*flags, f"--results_dir={tmp_path / 'results'}"])
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("seen", "acted", "said"),
    [
        (SHOWN, Discrete(10**6 + 1), "1,000,001"),
        (SHOWN, Discrete(2**62), "an action has"),
        (SHOWN, MultiDiscrete([2**31, 2**31]), "4,294,967,296"),
        (SHOWN, MultiBinary(10**7), "10,000,000"),
        (Discrete(10**9), FEW, "an observation has 1,000,000,000"),
        (MultiDiscrete([2**31, 2]), FEW, "an observation has"),
        (Dict(a=SHOWN, b=Discrete(2**40)), FEW, "an observation has"),
        (SHOWN, Discrete(10**6), "GB"),  # its weights, and what replay holds of it
        (Discrete(10**6), FEW, "GB"),
    ],
)
def test_spaces_are_weighed_before_anything_is_allocated(seen, acted, said, tmp_path):
    began_s = time.process_time()
    with pytest.raises(ConfigError, match=said):
        prepare_sized(seen, acted, tmp_path, REPLAY)
    assert time.process_time() - began_s < 5
