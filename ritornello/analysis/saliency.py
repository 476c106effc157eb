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

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

from ritornello.agent.models.base import ActorCritic, Heads, Inputs
from ritornello.analysis.films import (
    BLUE,
    ENLARGEMENT,
    WHITE,
    YELLOW,
    Reel,
    Viewing,
    film_parser,
    full_colour,
    tinted,
    until_interrupted,
    with_legend,
    write_film,
)
from ritornello.analysis.options import add, results_folder
from ritornello.core.errors import ConfigError
from ritornello.metrics.film import enlarged

EPILOG = """examples:
  python -m ritornello.analysis saliency --load_model_url=models/pong
  python -m ritornello.analysis saliency --load_model_url=<run> --start=500 --seconds=10 --gif
  python -m ritornello.analysis saliency --load_model_url=<other> --actions=<folder>/actions.json
  python -m ritornello.analysis saliency --load_model_url=models/pong --form=earlier --seconds=3

What to look for: the ball and the agent's own paddle should be hot shortly before they meet, and
cold while nothing can be done. Blurring also makes walls and scores look as the network has never
seen them, and it answers wildly; --blend=average leaves them as they are. An agent of random
weights has maps too: a picture alone proves nothing, compare. Recurrent agents are asked with their
memory as it was before the frame.
"""
FORMS = ("paper", "earlier")
BLENDS = ("blur", "average")
LIGHT = {"policy": BLUE, "value": YELLOW}
DEFAULTS = {"paper": (5.0, 5), "earlier": (2.0, 2)}  # form -> (radius, density)
BLUR_SIGMA = 3.0  # pixels; of the picture that a spot is blended with (sigma_A in the paper)
BANDS = 10  # of the earlier form, which shows the hottest 10 % of pixels of each frame
BATCH = 256  # perturbed pictures that the network is asked about at once


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _options(arguments)
    viewing = Viewing.of("saliency", options)
    spec = viewing.agent.env_spec
    if not spec.is_image:
        raise ConfigError(f"{spec.env_id} shows vectors; saliency maps are of images.")
    channels, height, width = spec.frame_shape
    grid = Grid(height, width, options.radius, options.density, options.form)
    newest = channels if options.frames == "newest" else 0
    perturbation = Perturbation(viewing.agent.model, grid, newest, options.blend)
    reel = Reel()
    with results_folder(viewing.output):
        with until_interrupted(reel) as ending:
            for moment in viewing.moments("saliency"):
                reel.add(moment, perturbation.maps(moment.inputs, moment.state, moment.heads))
        _write(viewing, grid, reel)
    return ending.status


@dataclass(frozen=True)
class Grid:
    """Where masks have their centres and how they look, for observations of one size."""

    height: int
    width: int
    radius: float  # sigma of the masks, in pixels of the observation
    density: int  # pixels from one centre to the next
    form: str = "paper"  # paper: a Gaussian; earlier: a small disc, blurred

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
        """Return all masks, [I, J, H, W] float32 in [0, 1]."""
        down = np.arange(self.height) - self.rows[:, None]  # [I, H]
        across = np.arange(self.width) - self.columns[:, None]  # [J, W]
        places = [(0, 0)]
        if self.form == "earlier":  # a disc of radius 1 is a pixel and its four neighbours
            places += [(-1, 0), (1, 0), (0, -1), (0, 1)]
        masks = sum(
            np.einsum("iy,jx->ijyx", self._bell(down + y), self._bell(across + x))
            for y, x in places
        )
        peak = sum(float(self._bell(np.hypot(y, x))) for y, x in places)
        return np.asarray(masks / peak, np.float32)

    def enlarged(self, maps: np.ndarray, height: int, width: int) -> np.ndarray:
        """Return maps [N, I, J] as pictures [N, height, width] float32 over the observation."""
        small = torch.from_numpy(np.ascontiguousarray(maps, np.float32))[:, None]
        covered = (len(self.rows) * self.density, len(self.columns) * self.density)
        full = F.interpolate(small, covered, mode="bilinear")[..., : self.height, : self.width]
        pictures: np.ndarray = F.interpolate(full, (height, width), mode="bilinear")[:, 0].numpy()
        return pictures

    def _bell(self, distance: np.ndarray) -> np.ndarray:
        """Return exp(-distance² / 2 sigma²); the paper's sigma² of 25 is a radius of 5."""
        bell: np.ndarray = np.exp(-np.square(distance) / (2 * self.radius**2))
        return bell


class Perturbation:
    """Asks one model about all points of a grid."""

    def __init__(
        self, model: ActorCritic, grid: Grid, newest_channels: int = 0, blend: str = "blur"
    ) -> None:
        """Prepare the masks.

        Args:
          model: on the CPU, in eval mode.
          grid: for observations of the model's size.
          newest_channels: perturb only so many of the last channels of a stack; 0: all.
          blend: blur: with the blurred picture, as in the paper; average: with the mean picture
            that the model subtracts, so that what moves disappears and the background stays.

        Raises:
          ConfigError: if the model sees something else, or knows no mean picture and needs one.
        """
        if len(model.obs_shape) != 3 or model.obs_shape[1:] != (grid.height, grid.width):
            raise ConfigError(
                f"saliency maps need a model that sees images of {grid.height}x{grid.width} "
                f"pixels, got one that sees {model.obs_shape}."
            )
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
          inputs: one observation of uint8 pixels with its other inputs, each [1, ...].
          state: [1, state_count], before this step: it is the same for all perturbed inputs.
          heads: [1, ...], what the model says of the unperturbed inputs.

        Returns:
          policy (squared logits) and value (squared reward units), [I, J] float32 each.
        """
        pixels = inputs.obs[0].float()  # [C, H, W]
        game = 0 if inputs.task_id is None else int(inputs.task_id)
        statistics = self._model.pixel_statistics(game)
        if self._to_average and statistics is not None:
            other = statistics.mean
        else:
            blurred = ndimage.gaussian_filter(pixels.numpy(), (0, BLUR_SIGMA, BLUR_SIGMA))
            other = torch.from_numpy(blurred)
        change = other - pixels
        if self._newest:
            change[: -self._newest] = 0
        policy, value = [], []
        for start in range(0, len(self._masks), BATCH):
            masks = self._masks[start : start + BATCH]
            shown = (pixels + change * masks).round().clamp(0, 255).to(torch.uint8)
            answer = self._model(_repeated(inputs, shown), state.expand(len(shown), -1))[0]
            policy.append(0.5 * (answer.params - heads.params).square().sum(-1))
            value.append(0.5 * (answer.value - heads.value).square())
        found = {"policy": torch.cat(policy), "value": torch.cat(value)}
        return {name: each.view(self._shape).numpy() for name, each in found.items()}


def _repeated(inputs: Inputs, obs: Tensor) -> Inputs:
    """Return N observations with the other inputs of one."""
    others = [
        None if part is None else part.expand(len(obs), *part.shape[1:]) for part in inputs[1:]
    ]
    return Inputs(obs, *others)  # type: ignore[arg-type]


def hottest(picture: np.ndarray) -> np.ndarray:
    """Return the hottest tenth of the pixels of a map [H, W] in ten steps up to 1, all else 0."""
    bounds = np.quantile(picture, np.linspace(0.9, 1.0, BANDS, endpoint=False))
    bands: np.ndarray = (picture[..., None] > bounds).sum(-1) / BANDS
    return bands.astype(np.float32)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = film_parser("saliency", __doc__, EPILOG)
    about = "paper: Gaussian masks; earlier: small discs, of which the hottest 10 %% are shown"
    add(parser, "form", "paper", about, choices=FORMS)
    add(parser, "radius", 0.0, "sigma of the masks, in pixels the agent sees; 0: 5, or 2 (earlier)")
    add(parser, "density", 0, "pixels between points of the grid; 0: 5, or 2 (earlier)", least=0)
    add(parser, "frames", "all", "frames of a stack that are changed", choices=("all", "newest"))
    about = "picture that spots are blended with: the blurred one, or the mean picture of training"
    add(parser, "blend", "blur", about, choices=BLENDS)
    about = "map that is shown"
    add(parser, "what", "both", about, choices=("policy", "value", "both"))
    options = parser.parse_args(arguments)
    radius, density = DEFAULTS[options.form]
    options.radius, options.density = options.radius or radius, options.density or density
    return options


def _write(viewing: Viewing, grid: Grid, reel: Reel) -> None:
    """Draw the film and write all files."""
    options, arrays = viewing.options, reel.arrays()
    shown = tuple(LIGHT) if options.what == "both" else (options.what,)
    scales = {what: full_colour(arrays[what]) for what in shown}
    legend = {what: LIGHT[what] for what in shown}
    if len(shown) > 1:
        legend["both"] = WHITE

    def drawn(number: int) -> np.ndarray:
        frame = reel.frame(number)
        colour = np.zeros(frame.shape, np.float32)
        for what in shown:
            heat = grid.enlarged(arrays[what][number : number + 1], *frame.shape[:2])[0]
            heat = hottest(heat) if grid.form == "earlier" else heat / scales[what]
            light = heat.clip(0, 1)[..., None] * np.array(LIGHT[what], np.float32)
            colour = (colour + light).clip(0, 1)
        return with_legend(enlarged(tinted(frame, colour), ENLARGEMENT), legend)

    settings = {
        "form": grid.form,
        "radius_pixels": grid.radius,
        "density_pixels": grid.density,
        "blend": options.blend,
        "frames_blended": options.frames,
        "what": options.what,
        "full_colour_at": scales,
    }
    strongest = int(arrays[shown[0]].max((1, 2)).argmax())
    write_film(viewing, reel, drawn, strongest, settings)
