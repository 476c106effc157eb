"""An environment of one's own: --env=tests.extensions.own_environment:Own/Light-v0."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Light(gymnasium.Env):
    """A lamp is on in one half of an image: 0 says left, 1 says right, and a hit pays 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, height=14, width=20, render_mode=None):
        self.render_mode = render_mode
        self.observation_space = Box(0, 255, (height, width, 2), np.uint8)
        self.action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random
        self.place = int(self.np_random.integers(self.observation_space.shape[1]))
        return self.image(), {}

    def step(self, action):
        is_right = self.place >= self.observation_space.shape[1] // 2
        reward = float(action == is_right)
        return self.image(), reward, True, False, {}  # observation, reward, terminated, truncated

    def image(self):
        image = np.zeros(self.observation_space.shape, np.uint8)
        image[:, self.place] = 255
        return image

    def render(self):
        return np.repeat(self.image()[:, :, :1], 3, axis=2)


gymnasium.register("Own/Light-v0", entry_point=Light)
