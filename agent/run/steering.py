"""Connects the control files of a run with what they steer: the learner, the saves, run.json."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from ritornello.agent.algorithms.base import Algorithm
from ritornello.agent.learners.place import Place
from ritornello.agent.learning.learner import Learner
from ritornello.agent.run.control import Apply, Control
from ritornello.agent.run.control_file import COMMANDS
from ritornello.agent.run.evaluating import NoEvaluating
from ritornello.agent.run.experience import Experience
from ritornello.agent.run.saving import Saving
from ritornello.agent.run.tally import Tally
from ritornello.agent.stored.checkpoint import Checkpoint
from ritornello.agent.stored.run_folder import RunFolder

# Several learners do the same in each turn. A wish to stop they tell each other, and one of them
# saves; a pause or another learning rate would be that of one learner.
OF_SEVERAL = ("save", "stop")
FINEST_SHARE = 1000  # a share of replay is a multiple of one over some number up to this

log = logging.getLogger(__name__)


def control_of(
    folder: RunFolder,
    learner: Learner,
    saving: Saving,
    tally: Tally,
    evaluating: NoEvaluating,
    experience: Experience,
    *,
    reproducible: bool,
    checkpoint: Checkpoint | None,
    place: Place,
) -> Control:
    """Return the control of a session, with the settings of the checkpoint it goes on from.

    Args:
      folder: folder of the run.
      learner: whose learning rate and entropy can be changed.
      saving: saves when asked, and puts the settings into every checkpoint.
      tally: how far the run is.
      evaluating: plays test games when asked, if this run plays any.
      experience: whose share of replay can be changed, if it has a queue and another buffer. It
        has the state of the checkpoint already.
      reproducible: whether every command is refused.
      checkpoint: from which the run continues; None: it begins.
      place: which learner this is; the first of several alone listens, and to few commands.
    """
    settings: dict[str, Apply] = {"lr_factor": learner.scale_lr}
    entropy = _entropy(learner.algorithm)
    if entropy is not None:
        settings["entropy_factor"] = entropy
    own = {}
    replay = experience.replay
    if replay.own_share is not None:
        own["replay_share"] = float(replay.own_share)
        # As a fraction of small numbers, in which quotas are exact.
        settings["replay_share"] = lambda share: replay.set_replay_share(
            Fraction(share).limit_denominator(FINEST_SHARE)
        )
    control = Control(
        folder.path,
        reproducible=reproducible,
        settings=settings,
        own=own,
        save=saving.now,
        evaluate=evaluating.request if evaluating.is_on else None,
        note=_noting(folder),
        listens=place.speaks,
        allowed=COMMANDS if place.world_size == 1 else OF_SEVERAL,
        counters=lambda: {"agent_steps": tally.agent_steps, "updates": tally.updates},
    )
    if checkpoint is not None:
        control.load_state_dict(checkpoint.state.get("control") or {})
    saving.more_state["control"] = control.state_dict
    return control


def _entropy(algorithm: Algorithm) -> Apply | None:
    """Return what scales the entropy costs of an algorithm; None if it has none."""
    config: Any = algorithm.config
    names = ("entropy_cost", "entropy_end_cost")
    costs = {name: getattr(config, name, None) for name in names}
    known = {name: cost for name, cost in costs.items() if isinstance(cost, (int, float))}
    if "entropy_cost" not in known:
        return None

    def apply(factor: float) -> None:
        # A frozen dataclass, as `Algorithm` says.
        algorithm.config = replace(config, **{name: cost * factor for name, cost in known.items()})

    return apply


def _noting(folder: RunFolder) -> Callable[[dict[str, Any]], None]:
    def note(answer: dict[str, Any]) -> None:
        try:
            folder.note(answer)
        except (OSError, ValueError) as error:
            log.warning("the command is not noted in run.json: %s", error)

    return note
