"""One line for the log of a run: what the agent is shown, by which rules and backend."""

from __future__ import annotations

from ritornello.core.spec import EnvSpec, ObservationPart
from ritornello.wrappers.config import ENVPOOL, EnvConfig
from ritornello.wrappers.env_ids import as_registered, game_arguments, is_atari
from ritornello.wrappers.registry import choose_backend, make_env_spec, tried


def describe(config: EnvConfig, *, restorable: bool = False) -> str:
    """Return one line for the run's log that says what the agent will be shown."""
    backend = choose_backend(config, restorable=restorable)
    end = f"backend {backend.name} ({backend.reason})"
    games = config.games
    title = config.env_id
    if len(games) > 1:
        title = f"{len(games)} games ({', '.join(game.env_id for game in games)})"
    if not all(is_atari(game.env_id) for game in games):
        spec = make_env_spec(config)
        shows = f", {shown_parts(spec)}" if spec.shows_images else ""
        plain = [game for game in games if not is_atari(game.env_id)]
        trials = [tried(game.env_id, game.kwargs, game.backend) for game in plain]
        hidden = dict.fromkeys(name for trial in trials for name in trial.left_out)
        without = f", without its {', '.join(hidden)}" if hidden else ""
        masks = ", which says what is allowed (action mask)" if spec.has_action_mask else ""
        end += f"; {trials[0].vector}" if trials[0].vector else ""
        source = "EnvPool" if backend.name == ENVPOOL else "Gymnasium"
        return (
            f"{title}: as {source} has it{shows}{without}{masks}, Atari rules do not apply; {end}"
        )
    return f"{title}: {', '.join(rule for rule in _atari_rules(config) if rule)}; {end}"


def _atari_rules(config: EnvConfig) -> list[str]:
    """Return the rules of games of Atari, a few words each; "" of what does not apply."""
    games = [as_registered(game) for game in config.games]
    sticky = sorted({f"{game.sticky_action_probability or 0.0:g}" for game in games})
    limits = sorted({game.max_episode_frames for game in games})
    skips = {game_arguments(game.env_id)["frameskip"] for game in games} - {1, config.action_repeat}
    if all(game.full_action_space for game in games):
        actions = "all 18 actions"
    elif config.actions or len(games) > 1:
        actions = f"actions {' '.join(make_env_spec(config).action_meanings)}"
    else:
        actions = "minimal actions"
    return [
        f"{config.width}x{config.height} {'gray' if config.grayscale else 'RGB'}",
        f"{config.frames_stacked} frames stacked",
        f"actions repeated for {config.action_repeat} frames"
        + (f" (and not {' or '.join(map(str, skips))} as registered)" if skips else ""),
        actions,
        f"sticky actions {' or '.join(sticky)}",
        f"starts after 0-{max(0, config.noop_max - 1)} frames" if config.noop_max > 1 else "",
        "FIRE at start" if config.fire_reset else "",
        "lost life ends the episode" if config.episodic_life else "lives ignored",
        f"at most {' or '.join(map(str, limits))} frames",
    ]


def shown_parts(spec: EnvSpec) -> str:
    """Return "images of 84x84 pixels and 3 channels", and what else is shown."""
    parts = spec.observation_parts or (ObservationPart("", spec.frame_shape, spec.frame_dtype),)
    said = []
    for part in parts:
        if part.is_image:
            channels, height, width = part.shape
            said.append(f"images of {height}x{width} pixels and {channels} channels")
        else:
            said.append(f"{part.shape[0]} numbers")
    stacked = f", {spec.frames_stacked} stacked" if spec.frames_stacked > 1 else ""
    return f"{' and '.join(said)}{stacked}"
