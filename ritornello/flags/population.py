"""The flags of the group `population`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ritornello.flags.group import FlagGroup, flag
from ritornello.flags.kinds import PathText
from ritornello.flags.values import MAX_AGENTS

AgentCount = Annotated[int, Field(ge=1, le=MAX_AGENTS)]
AgentNumber = Annotated[int, Field(ge=0, lt=MAX_AGENTS)]
ForeignShare = Annotated[float, Field(ge=0.0, lt=1.0)]


class PopulationFlags(FlagGroup):
    """Several agents on one machine at once; multi_train.py starts them (docs/populations.md)."""

    agent_count: AgentCount = flag(
        1,
        "number of agents that train on this machine at the same time, each in a process of its own. They divide its cores and its memory",
        of_this_command=True,
    )
    agent_number: AgentNumber = flag(
        0,
        "which of them this is, from 0",
        of_this_command=True,
    )
    share_replay_in: PathText | None = flag(
        None,
        "folder through which these agents send each other their unrolls. Each keeps what it takes of them in its own replay buffers (not in queues)",
        of_this_command=True,
    )
    foreign_share: ForeignShare | None = flag(
        None,
        "with --share_replay_in: of the unrolls that go into replay, at most this share is of the other agents; none: as many of each agent",
    )
