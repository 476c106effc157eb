"""Sharing of replay as the flags ask for it: what it needs is checked, and its end is made.

Next to read: agent/sharing/exchange.py, which sends and takes unrolls.
"""

from __future__ import annotations

from pathlib import Path

from ritornello.agent.assembly import Blueprint, env_config
from ritornello.agent.sharing.exchange import Exchange
from ritornello.agent.sharing.foreign import UnrollPost
from ritornello.agent.sharing.membership import Membership, check_place
from ritornello.agent.sharing.terms import Terms
from ritornello.core.errors import ConfigError
from ritornello.flags.options import Flags
from ritornello.replay.parameters import make_buffers
from ritornello.replay.parameters import parse_replay_parameters as parsed


def check_sharing(blueprint: Blueprint) -> None:
    """Check that the flags about a population can be honoured. Starts nothing.

    Raises:
      ConfigError: naming what does not go together, and what to do.
    """
    flags = blueprint.flags
    if flags.agent_number >= flags.agent_count:
        raise ConfigError(
            f"--agent_number={flags.agent_number} with --agent_count={flags.agent_count}: expected "
            "a number below the count; the first agent is 0."
        )
    membership = membership_of(flags)
    if membership is None:
        if flags.foreign_share is not None:
            raise ConfigError(
                f"--foreign_share={flags.foreign_share:g} needs --share_replay_in=<folder>: "
                "without it there are no unrolls of other agents. A sequence with "
                "share_replay: true gives it (docs/populations.md)."
            )
        return
    for is_wrong, why in _obstacles(blueprint):
        if is_wrong:
            raise ConfigError(f"--share_replay_in={flags.share_replay_in}: {why}")
    check_place(membership, _terms(blueprint))


def make_exchange(blueprint: Blueprint) -> Exchange | None:
    """Return this agent's end of the exchange, not opened; None if nothing is shared."""
    membership = membership_of(blueprint.flags)
    if membership is None:
        return None
    return Exchange(membership, _terms(blueprint), blueprint.schema)


def membership_of(flags: Flags) -> Membership | None:
    """Return which agent of which population a run is; None if it shares nothing."""
    if flags.share_replay_in is None:
        return None
    return Membership(
        Path(flags.share_replay_in), flags.agent_number, flags.agent_count, flags.foreign_share
    )


def _terms(blueprint: Blueprint) -> Terms:
    return Terms.of(env_config(blueprint.flags), UnrollPost(blueprint.schema).travelling)


def _obstacles(blueprint: Blueprint) -> list[tuple[bool, str]]:
    """Return what would keep an agent from sharing: whether it is so, and the words for it."""
    flags = blueprint.flags
    buffers = make_buffers(parsed(flags.replay_parameters), flags.training_fill_in_factor)
    stored = [buffer.name for buffer in buffers if buffer.needs_stored_features]
    clones = flags.use_policy_cloning_loss or flags.use_value_cloning_loss
    return [
        (
            flags.agent_count < 2,
            f"--agent_count={flags.agent_count} leaves nobody to share with: expected at least 2.",
        ),
        (
            flags.reproducible,
            "when unrolls of other agents come depends on time, so it does not go together with "
            "--reproducible=True.",
        ),
        (
            blueprint.place.world_size > 1,
            "an agent that shares its replay has one learner: leave out --learner_count.",
        ),
        (
            all(buffer.sets_the_pace for buffer in buffers),
            "no buffer in --replay_parameters can hold unrolls of other agents, because queues and "
            "circular buffers hand on new unrolls only: add a standard buffer.",
        ),
        (
            bool(stored),
            f"the buffer {', '.join(stored)} compares stored features, and those of another "
            'network mean nothing here: give it "dist_function": "policy_kl", or another type.',
        ),
        (
            bool(blueprint.schema.state_count) and not flags.burn_in_steps,
            "the network remembers, and unrolls of other agents begin with its initial memory: "
            "give --burn_in_steps, e.g. a quarter of --r_f_steps.",
        ),
        (
            clones,
            "the cloning losses hold on to what this agent did itself, and unrolls of other agents "
            "would pull it towards them: leave out --use_policy_cloning_loss and "
            "--use_value_cloning_loss.",
        ),
    ]
