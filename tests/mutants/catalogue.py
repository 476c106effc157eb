"""All mutants. To add one, put it beside its like in one of the four modules."""

from tests.mutants.learning_mutants import LEARNING_MUTANTS
from tests.mutants.replay_mutants import REPLAY_MUTANTS
from tests.mutants.run_mutants import RUN_MUTANTS
from tests.mutants.sharing_mutants import SHARING_MUTANTS

MUTANTS = (*LEARNING_MUTANTS, *REPLAY_MUTANTS, *RUN_MUTANTS, *SHARING_MUTANTS)
