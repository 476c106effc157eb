"""The actor-critic model, cut in three: torso up to the features, core, and heads on top.

    observations --torso--> features --core--> hidden --heads--> policy and value

The torso treats each observation by itself; what a model remembers, and what it knows besides the
observation (last action, last reward, game), is the business of the core. Plain models have a core
that passes features through. The cuts are where they are because (a) elite and attentive replay
compare features, (b) the torso can be computed for all rows at once and in several threads, and (c)
PopArt rewrites the value head between computing targets and computing losses, which must not cost
a second pass through the rest. Torsos are in torsos.py, cores in recurrent.py and attention.py, the
value head in popart.py, and factory.py builds the whole from a config.

Sizes: T rows, B columns (unrolls or environments), E environments, F features, H hidden units, P
parameters of the distribution of actions (agent/distributions.py). A recurrent state is one flat
float32 vector per column, so that nobody outside the core knows what is in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor, nn

from ritornello.agent.distributions import distribution_of, masked
from ritornello.agent.models.parallel import Parallel
from ritornello.agent.models.pixels import PixelStatistics, in_deviations
from ritornello.agent.models.policy_head import policy_head
from ritornello.agent.models.popart import PopArt
from ritornello.agent.models.precision import compute_dtype
from ritornello.agent.process_group import SINGLE_PROCESS, ProcessGroup
from ritornello.core.errors import ConfigError, ShapeError
from ritornello.core.spec import ActionSpec

if TYPE_CHECKING:
    from ritornello.agent.models.vectors import VectorStatistics

TORSO_PREFIX = "torso_net."  # of the torso's tensors in the state dict


class Inputs(NamedTuple):
    """All that a model may look at; leading dims are [T+1, B] for learning, [E] for acting."""

    obs: Tensor  # [..., *obs_shape] uint8 or float32
    first: Tensor  # [...] bool, x_t is the first observation after a reset
    last_action: Tensor  # [..., *action_shape], a_{t-1}; ignored where `first`
    last_reward: Tensor  # [...] float32, r_{t-1}, raw; ignored where `first`
    task_id: Tensor | None  # int64, broadcasts against the leading dims from the right; None: 0
    action_mask: Tensor | None = None  # [..., P] bool, what is allowed (`distributions.masked`)

    def as_row(self) -> Inputs:
        """Return inputs of E environments, `[E]`, as one row of E columns, `[1, E]`."""
        obs, first, action, reward, task_id, mask = self
        mask = None if mask is None else mask[None]
        return Inputs(obs[None], first[None], action[None], reward[None], task_id, mask)

    def of_columns(self, columns: slice) -> Inputs:
        """Return the inputs of some columns of `[T, B]`."""
        obs, first, action, reward, task_id, mask = self
        task_id = None if task_id is None else task_id[..., columns]
        mask = None if mask is None else mask[:, columns]
        obs, first, action, reward = (x[:, columns] for x in (obs, first, action, reward))
        return Inputs(obs, first, action, reward, task_id, mask)


class Heads(NamedTuple):
    """Policy and values of states; leading dims are those of the hidden units."""

    # [..., P] float32, parameters of pi(.|x): logits, if one action is chosen. Those of choices
    # that are not allowed are FORBIDDEN.
    params: Tensor
    value: Tensor  # [...] float32, V(x) in reward units
    value_normalised: Tensor  # [...] float32, V(x) in the units of the value loss


class Core(nn.Module):
    """The part between features and heads. This one passes features through, at no cost.

    Others (recurrent.py, attention.py) override `forward`. Stateless as an object: the recurrent
    state comes in and goes out, so one core may serve many environments and threads.
    """

    def __init__(self, hidden_count: int, state_count: int = 0) -> None:
        """Declare the sizes: H, and floats of recurrent state per column."""
        super().__init__()
        self.hidden_count = hidden_count
        self.state_count = state_count

    def initialise(self, generator: torch.Generator) -> None:
        """Draw the initial weights, if there are any."""

    def forward(
        self, features: Tensor, inputs: Inputs, state: Tensor, keep_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute `ActorCritic.hidden`, where shapes have been checked."""
        return features, state

    def attention_maps(self, features: Tensor, inputs: Inputs, state: Tensor) -> Tensor:
        """Return where the next action looks: [B, heads, h, w] float32 for features [1, B, F]."""
        raise ConfigError(
            "this model has no attention maps, expected one trained with --model=attention. "
            "For other models, see `python -m ritornello.analysis saliency`."
        )


class TorsoWithStatistics(nn.Module):
    """A torso that keeps statistics of everything that it sees, rather than of one image."""

    def unsettled(self) -> dict[int, PixelStatistics | VectorStatistics]:
        """Return part number -> statistics, for those that `observe` may still change."""
        raise NotImplementedError

    def observe(self, obs: Tensor, group: ProcessGroup = SINGLE_PROCESS) -> None:
        """Take observations `[N, *obs_shape]` into the statistics; `group` sums over learners."""
        raise NotImplementedError


class ActorCritic(nn.Module):
    """Policy and value over a shared torso and core.

    The torso may compute in bfloat16, by autocast (`set_precision`, for learning) or because its
    weights are bfloat16 (acting copies); features and everything after are float32.
    """

    def __init__(
        self,
        torso_net: nn.Module,
        obs_shape: tuple[int, ...],
        feature_count: int,
        actions: ActionSpec,
        value_head: PopArt,
        core: Core | None = None,
        game_pixels: Sequence[PixelStatistics] = (),
    ) -> None:
        """Put the parts together.

        Args:
          torso_net: maps [N, *obs_shape] uint8 pixels or float32 vectors to [N, F].
          obs_shape: shape of one stacked observation.
          feature_count: F, number of features.
          actions: what an action is.
          value_head: layer from H hidden units to values.
          core: maps F features to H hidden units; None: features go straight to the heads, and H is
            F.
          game_pixels: for several games, pixel statistics of each, because the background of one
            game says nothing of another's. Without them, the first layer of the torso may have
            statistics.
        """
        super().__init__()
        self.game_pixels = nn.ModuleList(game_pixels)
        self.torso_net = torso_net
        self.core = core if core is not None else Core(feature_count)
        self.obs_shape = tuple(obs_shape)
        self.feature_count = feature_count
        self.distribution = distribution_of(actions)
        self.policy_head = policy_head(self.core.hidden_count, actions)
        self.value_head = value_head
        self.precision = "fp32"
        self._parallel_torso: Parallel | None = None
        self._parallel_core: Parallel | None = None

    def set_threads(self, threads: int) -> None:
        """Compute torso and recurrent core in `threads` threads while learning (CPU only)."""
        self._parallel_torso = self._parallel_core = None
        if threads < 2:
            return
        # A new thread would spread its matrix products over all cores, until some large operator
        # makes torch tell it otherwise: results would depend on what came before.
        pool = ThreadPoolExecutor(
            threads,
            thread_name_prefix="learner",
            initializer=torch.set_num_threads,
            initargs=(torch.get_num_threads(),),
        )
        self._parallel_torso = Parallel(self.torso_net, pool, threads, dim=0)
        if self.state_count:  # a core without memory costs next to nothing
            self._parallel_core = Parallel(self.core, pool, threads, dim=1)

    def set_precision(self, precision: str) -> None:
        """Choose the number format of the torso: "fp32" or "bf16" (autocast; weights stay fp32)."""
        self.precision = precision

    def pixel_statistics(self, game: int = 0) -> PixelStatistics | None:
        """Return the pixel statistics of a game; None if its pixels are not normalised."""
        if self.game_pixels:
            return cast("PixelStatistics", self.game_pixels[game])
        if isinstance(self.torso_net, TorsoWithStatistics):
            return None  # no picture has all that it sees
        found = (m for m in self.torso_net.modules() if isinstance(m, PixelStatistics))
        return next(found, None)

    def unsettled(
        self, games: Collection[int] | None = None
    ) -> dict[int, PixelStatistics | VectorStatistics]:
        """Return game or part -> statistics of observations that `observe` may still change.

        With `games`, those of other games are left out.
        """
        if isinstance(self.torso_net, TorsoWithStatistics):
            return self.torso_net.unsettled()
        by_game = {
            game: self.pixel_statistics(game)
            for game in range(max(1, len(self.game_pixels)))
            if games is None or game in games
        }
        return {game: x for game, x in by_game.items() if x is not None and not x.is_settled}

    def observe(
        self, obs: Tensor, task_id: Tensor | None = None, group: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        """Update the statistics of observations, if they are normalised.

        `obs` and `task_id` are as for `torso`; `group` sums over learners, which may see different
        games.
        """
        rows, games = self._rows(obs, task_id)
        if isinstance(self.torso_net, TorsoWithStatistics):
            self.torso_net.observe(rows, group)
            return
        for game, statistics in self.unsettled().items():
            statistics.observe(rows if games is None else rows[games == game], group)

    def torso(self, obs: Tensor, task_id: Tensor | None = None) -> Tensor:
        """Compute the features of observations.

        Args:
          obs: [..., *obs_shape] uint8 or float32; any leading dims, e.g. [E] or [T+1, B].
          task_id: int64, broadcasts against the leading dims from the right; None means task 0.

        Returns:
          features [..., F] float32.
        """
        leading = obs.shape[: obs.ndim - len(self.obs_shape)]
        if obs.shape[len(leading) :] != self.obs_shape:
            raise ShapeError(
                f"obs has shape {tuple(obs.shape)}, expected [..., {self.obs_shape}]: "
                "the model was built for another environment."
            )
        rows, games = self._rows(obs, task_id)

        def compute(share: Tensor, where: slice) -> Tensor:
            seen = share if games is None else self._normalised(share, games[where])
            made: Tensor = self.torso_net(seen)
            return made

        with torch.autocast(obs.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
            if self._parallel_torso is not None and torch.is_grad_enabled():
                features = self._parallel_torso(rows, compute)
            else:
                features = compute(rows, slice(None))
        return features.float().reshape(*leading, self.feature_count)

    def seen(self, obs: Tensor, task_id: Tensor | None = None) -> Tensor:
        """Return observations as `torso_net` takes them: [N, *obs_shape], uint8 or normalised."""
        rows, games = self._rows(obs, task_id)
        return rows if games is None else self._normalised(rows, games)

    def _rows(self, obs: Tensor, task_id: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return observations as [N, *obs_shape], and the game of each [N] if it matters."""
        rows = obs.reshape(-1, *self.obs_shape)
        if not self.game_pixels:
            return rows, None
        leading = obs.shape[: obs.ndim - len(self.obs_shape)]
        games = torch.zeros((), dtype=torch.int64, device=obs.device)
        return rows, (games if task_id is None else task_id).expand(leading).reshape(-1)

    def _normalised(self, rows: Tensor, games: Tensor) -> Tensor:
        """Normalise uint8 `rows` by the statistics of their games, in the dtype of the torso."""
        dtype = compute_dtype(next(self.torso_net.parameters()))
        statistics = [cast("PixelStatistics", each) for each in self.game_pixels]
        # A row of each for every image: three times as fast as to pick out the images of each game.
        of_games = [each.prepared(dtype, torch.contiguous_format) for each in statistics]
        if statistics[0].is_of_each:
            return in_deviations(
                rows, *(torch.cat(part)[games] for part in zip(*of_games, strict=True))
            )
        backgrounds, scales = zip(*of_games, strict=True)
        background, scale = torch.cat(backgrounds), torch.stack(scales).to(dtype)
        scale = scale.reshape(-1, *[1] * len(self.obs_shape))
        return rows.to(dtype).sub_(background[games]).mul_(scale[games])

    @property
    def state_count(self) -> int:
        """Floats of recurrent state per environment; 0 for a model that remembers nothing."""
        return self.core.state_count

    def initial_state(self, count: int) -> Tensor:
        """Return the state at the start of an episode: [count, state_count] float32 zeros."""
        return torch.zeros(count, self.state_count, device=self.policy_head.weight.device)

    def hidden(
        self,
        features: Tensor,
        inputs: Inputs,
        state: Tensor,
        keep_gradient: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Compute hidden units from features, row after row.

        Rows with `first` start from the initial state. Without recurrence, extra inputs or
        attention this is the identity.

        Args:
          features: [T, B, F] float32, from `torso`.
          inputs: leading dims [T, B]; `obs` is not read.
          state: [B, state_count] float32, before row 0.
          keep_gradient: [T, B] bool; where False, no gradient flows into the state that enters this
            row. To cut the gradient before row k, set only row k to False; each such row has a
            small cost. None: all True.

        Returns:
          (hidden [T, B, H] float32, state after the last row [B, state_count] float32). With
          `set_threads`, no gradient flows through that state.

        Raises:
          ShapeError: if the state is not of this model or this batch.
        """
        expected = (features.shape[-2], self.state_count)
        if state.shape != expected:
            raise ShapeError(
                f"state has shape {tuple(state.shape)}, expected {expected} = [B, state_count]: "
                "it is of another model or another number of environments."
            )
        if self._parallel_core is None or not torch.is_grad_enabled():
            passed: tuple[Tensor, Tensor] = self.core(features, inputs, state, keep_gradient)
            return passed
        after = torch.empty_like(state)

        def compute(share: Tensor, columns: slice) -> Tensor:
            kept = None if keep_gradient is None else keep_gradient[:, columns]
            own = inputs.of_columns(columns)
            hidden, last = self.core(share, own, state[columns], kept)
            after[columns] = last.detach()
            made: Tensor = hidden
            return made

        return self._parallel_core(features, compute), after

    def heads(
        self, hidden: Tensor, task_id: Tensor | None = None, action_mask: Tensor | None = None
    ) -> Heads:
        """Compute policy and values from hidden units [..., H] float32.

        `task_id` is as for `torso`. `action_mask` [..., P] bool marks the choices that are allowed;
        None allows all.
        """
        values = self.value_head(hidden, task_id)
        params = masked(self.policy_head(hidden), action_mask)
        return Heads(params, values.value, values.value_normalised)

    def forward(self, inputs: Inputs, state: Tensor) -> tuple[Tensor, Heads, Tensor]:
        """Take one step of acting on inputs [E, ...], from the state [E, state_count] before it.

        Returns:
          Features [E, F], the heads [E, ...], and the state after this step.
        """
        features = self.torso(inputs.obs, inputs.task_id)
        hidden, state = self.hidden(features[None], inputs.as_row(), state)
        return features, self.heads(hidden[0], inputs.task_id, inputs.action_mask), state

    def attention_maps(self, inputs: Inputs, state: Tensor) -> Tensor:
        """Return where each attention head looks when it acts on inputs of E environments.

        `state` is [E, state_count] float32, before this step.

        Returns:
          [E, heads, h, w] float32, at least 0; each map sums to 1.

        Raises:
          ConfigError: if this model has no attention.
        """
        features = self.torso(inputs.obs, inputs.task_id)
        return self.core.attention_maps(features[None], inputs.as_row(), state)
