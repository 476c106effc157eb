"""The agent: models, algorithms, acting, learning, and the life of a run.

The rooms, each of which imports only those above it (tests/test_layers.py):

| room | what is there |
|---|---|
| `reduction.py` | sums over the batches of several learners |
| `distributions.py` | what the parameters of a policy mean: draws, log-probabilities, divergences |
| `models/` | networks, PopArt, memory, pixel statistics |
| `stored/` | run folders, checkpoints, shipped models, schemas of what is read |
| `machine.py` | what this machine offers, and what follows from it |
| `algorithms/` | V-trace, the losses, and what algorithms of one's own are built from |
| `acting/` | choosing actions, rollouts, worker processes, the inference server |
| `learning/` | batches, the learner, optimisers, updates that are not finite |
| `pools/` | the worker processes of a run: started, watched, replaced, ended |
| `cluster/` | workers on other machines: hosts that run them, and the gateway to the learner |
| `learners/` | several learners of one run: which one this is, and their group |
| `assembly.py` | from flags to parts: the one place that knows both |
| `testing/` | test mode: whole games, scores, tables |
| `run/` | the life of a run: experience, the loop, saving, reporting, resuming |
| `session.py` | one invocation of main.py: everything is checked before anything is made |

`export.py` and `torchbeast.py` are programs of their own (`python -m ritornello.agent.export`).
"""
