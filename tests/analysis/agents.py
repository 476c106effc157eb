"""Agents that have not learned anything, as model folders, for analyses that load agents."""

from ritornello.agent.assembly import Blueprint
from ritornello.agent.stored.model_file import save_model
from ritornello.flags.parsing import parse


def draw_blueprint(*flags, env="CartPole-v1"):
    """Resolve flags to a blueprint of a small run in one process."""
    small = ["--seed=0", "--worker_count=1", "--envs_per_worker=2", "--device=cpu"]
    return Blueprint.draw(parse([f"--env={env}", *small, *flags]))


def write_agent(folder, *flags, seed=0, env="CartPole-v1"):
    """Write a model folder; equal seeds give equal weights."""
    blueprint = draw_blueprint(*flags, env=env)
    model = blueprint.model(seed)
    return write_model(folder, blueprint, model)


def write_model(folder, blueprint, model):
    """Write a model folder of a model."""
    facts = {"env_spec": blueprint.env_spec.to_dict(), "agent_steps": 1000, "updates": 500}
    save_model(folder, model.state_dict(), blueprint.flags.to_json(), facts)
    return folder
