"""The newest unrolls, whose last observations attentive replay compares its candidates with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from ritornello.core.unroll import UnrollSchema
from ritornello.replay.buffer import Buffer
from ritornello.replay.item import Item

MAX_QUERIES = 32  # newest unrolls with which attentive replay compares, of all games together
MAX_SILENCE = 1000  # unrolls of others; then an environment is gone, as after a resume with fewer

Origin = tuple[int, int]  # an environment: (worker, env)


class NewestUnrolls:
    """The newest unroll of each of the environments that sent one last. Not thread-safe."""

    def __init__(self, tasks: Iterable[int | None]) -> None:
        """Hold nothing; `tasks` are the games of the attentive buffers (None: all games)."""
        self._newest: dict[int | None, OrderedDict[Origin, Item]] = {
            task: OrderedDict() for task in tasks
        }

    def keep(self, item: Item, origin: Origin, task: int) -> None:
        """Hold an item of the game `task`, in place of the last one of its environment."""
        for of_task, newest in self._newest.items():
            if of_task in (None, task):
                newest[origin] = item
                newest.move_to_end(origin)
                if len(newest) > max(1, MAX_QUERIES // len(self._newest)):
                    newest.popitem(last=False)
                while item.id - next(iter(newest.values())).id > MAX_SILENCE:
                    newest.popitem(last=False)

    def discard(self, ids: Set[int]) -> None:
        """Let go of the items with these ids, except for the last one of a game."""
        for newest in self._newest.values():
            for origin in [origin for origin, item in newest.items() if item.id in ids]:
                if len(newest) > 1:  # attentive replay compares with at least one
                    del newest[origin]

    def of(self, task: int | None) -> list[Item]:
        """Return the unrolls for the attentive buffers of one of the tasks, the latest one last."""
        return list(self._newest[task].values())

    def suffice(self, buffer: Buffer) -> bool:
        """Whether there is an unroll to compare with, if the sampler of `buffer` needs queries.

        Even a full buffer may lack one, if other agents have filled it.
        """
        return not buffer.sampler.needs_queries or bool(self._newest[buffer.task])

    def items(self) -> Iterator[Item]:
        """Yield all that is held; an item may come twice."""
        for newest in self._newest.values():
            yield from newest.values()

    def state(self) -> list[list[int]]:
        """Return [worker, env, id of the item] of all that is held."""
        return [
            [*origin, item.id]
            for newest in self._newest.values()
            for origin, item in newest.items()
        ]

    def load_state(
        self, state: Iterable[Sequence[int]], items: Mapping[int, Item], schema: UnrollSchema
    ) -> None:
        """Take over a `state`; `items` has all of its ids, and `schema` tells their games."""
        for newest in self._newest.values():
            newest.clear()
        for worker, env, i in sorted(state, key=lambda row: row[2]):  # in the order of insertion
            task = int(schema.view(items[i].record(), "task_id"))
            self.keep(items[i], (int(worker), int(env)), task)
