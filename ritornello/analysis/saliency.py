"""Where does an agent look? A film of a game, with what matters to policy and value coloured in.

Each frame is blurred at one small spot after the other; where that changes the policy the film is
blue, where it changes the value yellow, and white where it changes both alike
(analysis/saliency_maps.py). Colours are scaled once for the whole film, so they can be compared
between its frames. Written are film.mp4, maps.npz (the raw maps), settings.json, actions.json (for
--actions) and still.png (the strongest moment).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import inf

import numpy as np

from ritornello.agent.machine import bf16_is_faster
from ritornello.agent.models.precision import PRECISIONS
from ritornello.analysis.options import results_folder
from ritornello.analysis.playing_options import Viewing, until_interrupted, viewing_parser
from ritornello.analysis.playing_reel import (
    BLUE,
    WHITE,
    YELLOW,
    Reel,
    full_colour,
    tinted,
    with_legend,
)
from ritornello.analysis.saliency_maps import BLENDS, FORMS, Grid, Perturbation
from ritornello.core.atomic_file import write_json
from ritornello.core.errors import ConfigError
from ritornello.metrics.film import Film, enlarged, write_gif

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
WHAT = ("policy", "value")
LIGHT = {"policy": BLUE, "value": YELLOW}
BOTH = {"both": WHITE}  # what the two are together
DEFAULTS = {"paper": (5.0, 5), "earlier": (2.0, 2)}  # form -> (radius, density)
ENLARGEMENT = 2  # pixels of the film per pixel of the game
BANDS = 10  # of the earlier form, which shows the hottest 10 % of pixels of each frame


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _options(arguments)
    viewing = Viewing.draw("saliency", options)
    spec = viewing.agent.env_spec
    if not spec.is_image:
        raise ConfigError(f"{spec.env_id} shows vectors; saliency maps are of images.")
    channels, height, width = spec.frame_shape
    viewing.agent.model.set_precision(options.precision)
    grid = Grid(height, width, options.radius, options.density, options.form)
    newest = channels if options.frames == "newest" else 0
    perturbation = Perturbation(viewing.agent.model, grid, newest, options.blend)
    reel = Reel()
    with results_folder(viewing.output):
        with until_interrupted(reel) as ending:
            for moment in viewing.moments("saliency"):
                maps = perturbation.maps(moment.inputs, moment.state, moment.heads)
                reel.add(moment, maps._asdict())
        _write(viewing, grid, reel, options)
    return ending.status


def hottest(picture: np.ndarray) -> np.ndarray:
    """Return the hottest tenth of the pixels of a map [H, W] in ten steps up to 1, all else 0."""
    bounds = np.quantile(picture, np.linspace(0.9, 1.0, BANDS, endpoint=False))
    bands: np.ndarray = (picture[..., None] > bounds).sum(-1) / BANDS
    return bands.astype(np.float32)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = viewing_parser("saliency", __doc__, EPILOG)
    parser.add_argument(
        "--form",
        choices=FORMS,
        default="paper",
        help="paper: masks are Gaussians, colour grows with saliency; earlier: small blurred "
        "discs, the hottest 10 %% of pixels of each frame are shown (default: %(default)s)",
    )
    parser.add_argument(
        "--radius",
        type=float,
        help="sigma of the masks, in pixels of the agent's observation (default: 5; with "
        "--form=earlier 2)",
    )
    parser.add_argument(
        "--density",
        type=int,
        help="distance between points of the grid, in the same pixels (default: 5; with "
        "--form=earlier 2)",
    )
    parser.add_argument(
        "--frames",
        choices=("all", "newest"),
        default="all",
        help="change all frames of a stack, or only the newest one (default: %(default)s)",
    )
    parser.add_argument(
        "--blend",
        choices=BLENDS,
        default="blur",
        help="picture with which spots are blended. blur: the same picture, blurred, as in the "
        "paper. average: the mean picture of training, in which nothing moves and the background "
        "is as the network knows it (default: %(default)s)",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="precision of the network after its first layer. bf16 is faster, its maps differ by "
        "about a hundredth of their peak, and it is the default where the processor has it",
    )
    parser.add_argument(
        "--what",
        type=_what,
        default=WHAT,
        metavar="policy,value",
        help="maps to show: policy, value, or policy,value (default: both)",
    )
    parser.add_argument(
        "--strength",
        type=float,
        default=1.0,
        help="factor by which colours are made stronger (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    radius, density = DEFAULTS[options.form]
    options.radius = radius if options.radius is None else options.radius
    if not 0 < options.radius < inf:
        parser.error(f"--radius={options.radius:g}, expected a finite number of pixels above 0")
    if not 0 < options.strength < inf:
        parser.error(f"--strength={options.strength:g}, expected a finite number above 0")
    options.density = density if options.density is None else options.density
    if options.precision is None:
        options.precision = "bf16" if bf16_is_faster() else "fp32"
    return options


def _what(text: str) -> tuple[str, ...]:
    asked = tuple(text.split(","))
    if not asked or set(asked) - set(WHAT):
        raise argparse.ArgumentTypeError(f"{text!r} is not policy, value or policy,value")
    return asked


def _write(viewing: Viewing, grid: Grid, reel: Reel, options: argparse.Namespace) -> None:
    """Draw the film and write all files."""
    import imageio.v3 as iio  # lazily: only pictures need it

    folder, arrays = viewing.output, reel.arrays()
    viewing.save_actions()
    arrays_of_grid = {"rows": grid.rows, "columns": grid.columns}
    np.savez_compressed(folder / "maps.npz", allow_pickle=False, **arrays, **arrays_of_grid)
    scales = {what: full_colour(arrays[what]) for what in WHAT}
    legend = {what: LIGHT[what] for what in options.what} | (BOTH if len(options.what) > 1 else {})

    def drawn(number: int) -> np.ndarray:
        frame = reel.frame(number)
        colour = np.zeros(frame.shape, np.float32)
        for what in options.what:
            heat = grid.enlarged(arrays[what][number : number + 1], *frame.shape[:2])[0]
            heat = hottest(heat) if options.form == "earlier" else heat / scales[what]
            light = (options.strength * heat).clip(0, 1)[..., None] * np.array(
                LIGHT[what], np.float32
            )
            colour = (colour + light).clip(0, 1)
        return with_legend(enlarged(tinted(frame, colour), ENLARGEMENT), legend)

    with Film(folder / "film.mp4", viewing.frames_per_s) as film:
        for number in range(len(reel)):
            film.add(drawn(number))
    strongest = int(arrays[options.what[0]].max((1, 2)).argmax())
    iio.imwrite(folder / "still.png", drawn(strongest))
    if options.gif:
        write_gif(
            folder / "film.gif",
            folder / "film.mp4",
            viewing.frames_per_s,
            shrink=ENLARGEMENT,
            max_kilobytes=options.gif,
        )
    settings = {
        **viewing.facts(),
        "frames": len(reel),
        "form": grid.form,
        "radius_pixels": grid.radius,
        "density_pixels": grid.density,
        "blend": options.blend,
        "frames_blended": options.frames,
        "precision": options.precision,
        "what": list(options.what),
        "strength": options.strength,
        "full_colour_at": scales,
        "still": viewing.start + strongest,
    }
    write_json(folder / "settings.json", settings)
    sys.stdout.write(f"written to {folder}: film of {len(reel)} moments, and its maps\n")
