"""All mutants. To add one, put it beside its like in one of these modules."""

from tests.mutants.impact_mutants import IMPACT_MUTANTS
from tests.mutants.learning_mutants import LEARNING_MUTANTS
from tests.mutants.replay_mutants import REPLAY_MUTANTS
from tests.mutants.run_mutants import RUN_MUTANTS
from tests.mutants.sharing_mutants import SHARING_MUTANTS

MUTANTS = (
    *(*LEARNING_MUTANTS, *IMPACT_MUTANTS, *REPLAY_MUTANTS, *RUN_MUTANTS),
    *SHARING_MUTANTS,
)
