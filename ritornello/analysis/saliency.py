"""Where does an agent look? A film of a game, with what matters to policy and value coloured in.

Each frame is blurred at one small spot after the other; where that changes the policy the film is
blue, where it changes the value yellow, and white where it changes both alike. Written are
film.mp4, maps.npz (the raw maps), settings.json, actions.json (for --actions) and still.png (the
strongest moment).

Perturbation saliency of Greydanus et al., "Visualizing and Understanding Atari Agents" (2018),
https://arxiv.org/abs/1711.00138. Equations 1 to 3: for a mask M_ij with its peak of 1 at (i, j),

    I'(i, j) = I (1 - M_ij) + blur(I) M_ij
    S_policy(i, j) = 1/2 |logits(I) - logits(I'(i, j))|^2     S_value(i, j) = 1/2 (V(I) - V(I'))^2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

from ritornello.agent.models.base import ActorCritic, Heads, Inputs
from ritornello.agent.models.pixels import PIXEL_MAX
from ritornello.analysis import films
from ritornello.analysis.options import add
from ritornello.core.errors import ConfigError
from ritornello.metrics.film import enlarged

EXAMPLES = """  python -m ritornello.analysis saliency --load_model_url=models/pong
  python -m ritornello.analysis saliency --load_model_url=<run> --start=500 --steps=150
  python -m ritornello.analysis saliency --load_model_url=<other> --actions=<folder>/actions.json

The ball and the agent's own paddle should be hot shortly before they meet. Blurring also shows
walls and scores as the network has never seen them; --blend=average leaves them as they are. An
agent of random weights has maps too: compare.
"""
LIGHT = {"policy": films.BLUE, "value": films.YELLOW}
LEGEND = {**LIGHT, "both": films.WHITE}
BLUR_SIGMA = 3.0  # pixels; of the picture that a spot is blended with (sigma_A in the paper)
BATCH = 256  # perturbed pictures that the network is asked about at once


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    parser = films.film_parser("saliency", __doc__, EXAMPLES)
    add(parser, "radius", 5.0, "sigma of the masks, in pixels the agent sees")
    add(parser, "density", 5, "pixels between points of the grid", least=1)
    add(parser, "frames", "all", "frames of a stack that are changed", choices=("all", "newest"))
    about = "picture that spots are blended with: the blurred one, or the mean picture of training"
    add(parser, "blend", "blur", about, choices=("blur", "average"))
    options = parser.parse_args(arguments)
    filming = films.Filming("saliency", options)
    spec = filming.agent.env_spec
    if not spec.is_image:
        what = "several parts" if spec.shows_images else "vectors"
        raise ConfigError(f"{spec.env_id} shows {what}; saliency maps are of single images.")
    channels, height, width = spec.frame_shape
    grid = Grid(height, width, options.radius, options.density)
    newest = channels if options.frames == "newest" else 0
    perturbation = Perturbation(filming.agent.model, grid, newest, options.blend)
    arrays = filming.play(lambda step: perturbation.maps(step.inputs, step.state, step.heads))
    scales = {what: films.full_colour(arrays[what]) for what in LIGHT}

    def draw(frame: np.ndarray, number: int) -> np.ndarray:
        colour = np.zeros(frame.shape, np.float32)
        for what, light in LIGHT.items():
            heat = grid.enlarged(arrays[what][number : number + 1], *frame.shape[:2])[0]
            heat = (heat / scales[what]).clip(0, 1)[..., None]
            colour = (colour + heat * np.array(light, np.float32)).clip(0, 1)
        picture = enlarged(films.tinted(frame, colour), films.ENLARGEMENT)
        return films.with_legend(picture, LEGEND)

    settings = {
        "radius_pixels": grid.radius,
        "density_pixels": grid.density,
        "blend": options.blend,
        "frames_blended": options.frames,
        "full_colour_at": scales,
    }
    return filming.write(draw, int(arrays["policy"].max((1, 2)).argmax()), settings)


@dataclass(frozen=True)
class Grid:
    """Centres and width of the masks, for observations of one size."""

    height: int
    width: int
    radius: float  # sigma of the masks, in pixels of the observation
    density: int  # pixels from one centre to the next

    def __post_init__(self) -> None:
        """Raise ConfigError on values out of range."""
        if not 0 < self.radius < float("inf"):
            raise ConfigError(f"--radius={self.radius:g}, expected a finite number above 0.")
        if not 1 <= self.density <= min(self.height, self.width):
            raise ConfigError(
                f"--density={self.density}, expected 1 to {min(self.height, self.width)} pixels."
            )

    @property
    def rows(self) -> np.ndarray:
        """Centres from top to bottom, [I] pixels."""
        return np.arange(self.density // 2, self.height, self.density)

    @property
    def columns(self) -> np.ndarray:
        """Centres from left to right, [J] pixels."""
        return np.arange(self.density // 2, self.width, self.density)

    def masks(self) -> np.ndarray:
        """Return all masks, [I, J, H, W] float32: exp(-distance² / 2 radius²), as in the paper."""
        down = np.square(np.arange(self.height) - self.rows[:, None])  # [I, H]
        across = np.square(np.arange(self.width) - self.columns[:, None])  # [J, W]
        bells = (np.exp(-squares / (2 * self.radius**2)) for squares in (down, across))
        return np.asarray(np.einsum("iy,jx->ijyx", *bells), np.float32)

    def enlarged(self, maps: np.ndarray, height: int, width: int) -> np.ndarray:
        """Return maps [N, I, J] as pictures [N, height, width] float32 over the observation."""
        small = torch.from_numpy(np.ascontiguousarray(maps, np.float32))[:, None]
        covered = (len(self.rows) * self.density, len(self.columns) * self.density)
        full = F.interpolate(small, covered, mode="bilinear")[..., : self.height, : self.width]
        pictures: np.ndarray = F.interpolate(full, (height, width), mode="bilinear")[:, 0].numpy()
        return pictures


class Perturbation:
    """Perturbs the input of one model at all points of a grid."""

    def __init__(
        self, model: ActorCritic, grid: Grid, newest_channels: int = 0, blend: str = "blur"
    ) -> None:
        """Prepare the masks. The model, on the CPU in eval mode, sees images of the grid's size.

        Only the last `newest_channels` channels of a stack are perturbed; 0: all. With blend="blur"
        spots are those of the blurred picture, as in the paper; with "average" those of the mean
        picture that the model subtracts, so that what moves disappears and the background stays.

        Raises:
          ConfigError: if the blend needs a mean picture and the model has none.
        """
        if blend == "average" and model.pixel_statistics() is None:
            raise ConfigError(
                "this model knows no average picture (it was trained with "
                "--normalise_pixels=False): expected --blend=blur."
            )
        self._model, self._newest, self._to_average = model, newest_channels, blend == "average"
        self._shape = (len(grid.rows), len(grid.columns))
        self._masks = torch.from_numpy(grid.masks()).flatten(0, 1)[:, None]  # [N, 1, H, W]

    @torch.inference_mode()
    def maps(self, inputs: Inputs, state: Tensor, heads: Heads) -> dict[str, np.ndarray]:
        """Return the maps of one observation.

        Args:
          inputs: one observation, an image, with its other inputs, each [1, ...].
          state: [1, state_count], before this step: it is the same for all perturbed inputs.
          heads: [1, ...], outputs of the model for the unperturbed inputs.

        Returns:
          policy (squared logits) and value (squared reward units), [I, J] float32 each.
        """
        pixels = inputs.obs[0].float()  # [C, H, W]
        change = self._blended(pixels, inputs) - pixels
        if self._newest:
            change[: -self._newest] = 0
        policy, value = [], []
        for masks in torch.split(self._masks, BATCH):
            shown = pixels + change * masks
            if inputs.obs.dtype == torch.uint8:
                shown = self._scaled(shown)
            answer = self._model(_repeated(inputs, shown), state.expand(len(shown), -1))[1]
            policy.append(0.5 * (answer.params - heads.params).square().sum(-1))
            value.append(0.5 * (answer.value - heads.value).square())
        found = {"policy": torch.cat(policy), "value": torch.cat(value)}
        return {name: each.view(self._shape).numpy() for name, each in found.items()}

    def _scaled(self, pictures: Tensor) -> Tensor:
        """Return pictures [N, C, H, W] of 0 to 255, not rounded, as the model takes floats."""
        if self._model.game_pixels:  # it normalises these itself
            return pictures
        statistics = self._model.pixel_statistics()
        if statistics is None:
            return pictures / PIXEL_MAX
        return statistics.shown(pictures, torch.float32, torch.contiguous_format)

    def _blended(self, pixels: Tensor, inputs: Inputs) -> Tensor:
        """Return the picture with which spots of `pixels` [C, H, W] are blended."""
        game = 0 if inputs.task_id is None else int(inputs.task_id)
        statistics = self._model.pixel_statistics(game)
        if self._to_average and statistics is not None:
            return statistics.mean
        return torch.from_numpy(
            ndimage.gaussian_filter(pixels.numpy(), (0, BLUR_SIGMA, BLUR_SIGMA))
        )


def _repeated(inputs: Inputs, obs: Tensor) -> Inputs:
    """Return N observations with the other inputs of one."""
    others = [
        None if part is None else part.expand(len(obs), *part.shape[1:]) for part in inputs[1:]
    ]
    return Inputs(obs, *others)  # type: ignore[arg-type]
