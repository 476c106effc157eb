"""A board game against a random opponent, who makes no mistake of the rules."""

import gymnasium
import numpy as np
import pettingzoo


class TicTacToe(gymnasium.Env):
    """Shows PettingZoo's {"observation", "action_mask"}; a win pays 1, a loss -1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.game = pettingzoo.make("aec", "classic/tictactoe_v3", render_mode=render_mode)
        self.observation_space = self.game.observation_space("player_1")
        self.action_space = self.game.action_space("player_1")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game.reset(seed=seed)
        self.me = f"player_{self.np_random.integers(1, 3)}"
        self.let_the_other_play()
        return self.game.observe(self.me), {}

    def step(self, action):
        self.game.step(int(action))
        self.let_the_other_play()
        seen, reward = self.game.observe(self.me), self.game.rewards[self.me]
        return seen, reward, self.game.terminations[self.me], False, {}

    def let_the_other_play(self):
        other = self.game.agent_selection
        if other != self.me and not self.game.terminations[other]:
            cells = np.flatnonzero(self.game.observe(other)["action_mask"])
            self.game.step(int(self.np_random.choice(cells)))

    def render(self):
        return self.game.render()


gymnasium.register("Own/TicTacToe-v0", entry_point=TicTacToe)
