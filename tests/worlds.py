"""Small environments with other actions and observations than one choice and one vector.

Importing this module registers them, as tests/fakes.py does: "tests.worlds:tests/Reach-v0". Each is
deterministic given the seed of its reset, and what the best policy earns is known.
"""

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from tests.fakes import Drawn, register


class ReachEnv(Drawn):
    """Move to a target in the plane: a step of at most `STEP` along each axis.

    Observation: the way to the target. A step pays by how much it came nearer, so that a game pays
    at most the distance at its start; it is over when the target is reached, or after 20 steps.
    """

    STEP, NEAR, TIME_LIMIT = 0.25, 0.15, 20

    observation_space = Box(-4, 4, (2,), np.float32)
    action_space = Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * np.pi)
        self.way = np.array([np.cos(angle), np.sin(angle)], np.float32)
        self.t = 0
        return self.way.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} was not cut at the bounds"
        before = np.linalg.norm(self.way)
        self.way = np.clip(self.way - self.STEP * action, -4, 4)
        self.t += 1
        distance = np.linalg.norm(self.way)
        there = bool(distance < self.NEAR)
        return self.way.copy(), float(before - distance), there, self.t >= self.TIME_LIMIT, {}

    def render(self):
        return np.zeros((32, 32, 3), np.uint8)


class RemoteEnv(ReachEnv):
    """The same, but the way is shown in another unit and from another place for each axis."""

    UNIT, PLACE = np.array([1e-3, 1e3]), np.array([7.0, -2e4])

    observation_space = Box(-1e5, 1e5, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        way, info = super().reset(seed=seed)
        return (way * self.UNIT + self.PLACE).astype(np.float32), info

    def step(self, action):
        way, *others = super().step(action)
        return (way * self.UNIT + self.PLACE).astype(np.float32), *others


class AskingEnv(Drawn):
    """Shows four times what is to be done, and pays by how right that was."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._show(), {}

    def step(self, action):
        assert self.action_space.contains(action), repr(action)
        reward = self._pay(action)
        self.t += 1
        return self._show(), reward, self.t >= 4, False, {}


class DialsEnv(AskingEnv):
    """Three dials are to be set as shown; each that is right pays a third."""

    DIALS = (3, 2, 4)

    observation_space = Box(0, 1, (sum(DIALS),), np.float32)
    action_space = MultiDiscrete(DIALS)

    def _pay(self, action):
        return float((action == self.wanted).mean())

    def _show(self):
        self.wanted = self.np_random.integers(self.DIALS)
        digits = zip(self.wanted, self.DIALS, strict=True)
        return np.concatenate([np.eye(n, dtype=np.float32)[digit] for digit, n in digits])


class MixedEnv(AskingEnv):
    """A dict of everything: two switches, a lever among three from 1, and one number.

    All that is right pays: a quarter for each switch and the lever as shown, and a quarter less the
    distance of the number, at most.
    """

    observation_space = Box(-1, 1, (6,), np.float32)
    action_space = Dict(
        {
            "number": Box(-1, 1, (1, 1), np.float64),
            "others": Tuple((MultiBinary(2), Discrete(3, start=1))),
        }
    )

    def _pay(self, action):
        switches, lever = action["others"]
        right = int((switches == self.switches).sum()) + int(lever == self.lever)
        distance = abs(float(action["number"][0, 0]) - self.number)
        return 0.25 * right + 0.25 * max(0.0, 1 - distance)

    def _show(self):
        self.switches = self.np_random.integers(2, size=2)
        self.lever = int(self.np_random.integers(1, 4))
        self.number = float(self.np_random.uniform(-1, 1))
        lever = np.eye(3)[self.lever - 1]
        return np.array([*self.switches, *lever, self.number], np.float32)


class LampEnv(AskingEnv):
    """An RGB image of 9 x 13 pixels in which one of three lamps is lit: choose it."""

    observation_space = Box(0, 255, (9, 13, 3), np.uint8)
    action_space = Discrete(3)

    def _pay(self, action):
        return float(action == self.lamp)

    def _show(self):
        self.lamp = int(self.np_random.integers(3))
        image = self.np_random.integers(0, 60, (9, 13, 3), np.uint8)
        image[2:6, 1 + 4 * self.lamp : 4 + 4 * self.lamp, int(self.np_random.integers(3))] = 255
        return image


class SignEnv(AskingEnv):
    """A dict: an image whose left or right half is bright, and beside it what that means.

    The bright half is right if `honest`, the other one if not, so that neither tells anything by
    itself. `noise` are a flag and two numbers that say nothing.
    """

    observation_space = Dict(
        {
            "image": Box(0, 255, (11, 16, 1), np.uint8),
            "honest": Discrete(2),
            "noise": Tuple((MultiBinary(1), Box(-1, 1, (2,), np.float32))),
        }
    )
    action_space = Discrete(2)

    def _pay(self, action):
        return float(action == (self.half if self.honest else 1 - self.half))

    def _show(self):
        self.half, self.honest = (int(n) for n in self.np_random.integers(2, size=2))
        image = np.zeros((11, 16, 1), np.uint8)
        image[:, 8 * self.half : 8 * self.half + 8] = 200
        noise = (
            self.np_random.integers(2, size=1).astype(np.int8),
            self.np_random.uniform(-1, 1, 2).astype(np.float32),
        )
        return {"image": image, "honest": self.honest, "noise": noise}


register(ReachEnv, RemoteEnv, DialsEnv, MixedEnv, LampEnv, SignEnv)
