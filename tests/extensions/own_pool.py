"""A pool of workers of one's own: here they take turns in the thread that asks for unrolls."""

from ritornello.agent.acting.worker import WorkerBody
from ritornello.agent.pools.worker_pool import UnrollBlock


class TurnsPool:
    """A WorkerPool (agent/pools/worker_pool.py); another one might ask machines elsewhere."""

    def __init__(self, blueprint, board, life):
        self.configs = blueprint.workers(life=life)
        self.board = board  # has the newest weights
        self.bodies = []
        self.given = 0

    def start(self):
        self.bodies = [WorkerBody(config, self.board) for config in self.configs]

    def poll(self, timeout_s):
        config, body = self.configs[0], self.bodies[0]
        records = config.schema().allocate(config.num_envs)
        episodes, stats = body.collect(records)
        self.given += 1
        return [UnrollBlock(config.worker_id, records, episodes, stats, release=lambda: None)]

    def stats(self):
        return {"workers/alive": float(len(self.bodies))}

    def describe(self):
        return [f"{self.given} blocks were given"]

    def stop(self, grace_s):
        bodies, self.bodies = self.bodies, []
        for body in bodies:
            body.close()
