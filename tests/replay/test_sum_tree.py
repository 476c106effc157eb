import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ritornello.replay.sum_tree import SumTree
from tests.reference.prioritised_loops import position_hit
from tests.replay.builders import check_sums

WHOLE = st.integers(0, 2**30)  # sums of whole numbers are exact, so the twin finds the very same


class SumTreeMachine(RuleBasedStateMachine):
    """Set, grow and refill in any order; a plain list does the same beside it."""

    def __init__(self):
        super().__init__()
        self.tree = SumTree()
        self.masses = []

    @rule(mass=WHOLE)
    def append(self, mass):
        self.tree.set(len(self.masses), mass)
        self.masses.append(mass)

    @rule(gap=st.integers(1, 9), mass=WHOLE)
    def leave_positions_out(self, gap, mass):
        self.masses += [0] * gap
        self.append(mass)

    @precondition(lambda self: self.masses)
    @rule(data=st.data())
    def set_one(self, data):
        position = data.draw(st.integers(0, len(self.masses) - 1))
        self.masses[position] = data.draw(WHOLE)
        self.tree.set(position, self.masses[position])

    @precondition(lambda self: self.masses)
    @rule(data=st.data())
    def set_many(self, data):
        place = st.integers(0, len(self.masses) - 1)
        changes = data.draw(st.lists(st.tuples(place, WHOLE), max_size=8))
        self.tree.set_many([p for p, _ in changes], [mass for _, mass in changes])
        for position, mass in changes:  # the last of equal positions wins
            self.masses[position] = mass

    @rule()
    def refill(self):
        self.tree = SumTree(self.masses)

    @precondition(lambda self: sum(self.masses))
    @rule(data=st.data())
    def find(self, data):
        total = sum(self.masses)
        targets = data.draw(st.lists(st.integers(0, total + 3), max_size=6))
        expected = [position_hit(self.masses, target) for target in targets]
        assert self.tree.find(targets).tolist() == expected

    @invariant()
    def it_holds_the_masses_and_their_sum(self):
        check_sums(self.tree)
        assert self.tree.total == sum(self.masses)
        assert self.tree[np.arange(len(self.masses))].tolist() == self.masses


TestASumTreeFindsWhatAPlainListFinds = SumTreeMachine.TestCase
TestASumTreeFindsWhatAPlainListFinds.settings = settings(max_examples=60, deadline=None)


@given(
    masses=st.lists(st.just(0.0) | st.floats(1e-300, 1e90), min_size=1, max_size=40),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=10),
)
def test_whatever_the_rounding_what_is_found_has_a_mass(masses, shares):
    tree = SumTree(masses)
    if not any(masses):
        with pytest.raises(ValueError, match="all masses are 0"):
            tree.find([0.0])
        return
    found = tree.find(np.array(shares) * tree.total)
    assert all(masses[position] > 0 for position in found)


@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 1e6)), max_size=60), st.integers(1, 50))
def test_the_tree_is_a_function_of_its_leaves_alone(changes, spare):
    """To the bit, whatever was set before and however large it has grown: a resume is exact."""
    tree, leaves = SumTree(np.zeros(21 + spare)), np.zeros(21)
    for position, mass in changes:
        tree.set(position, mass)
        leaves[position] = mass
    again = SumTree(leaves)
    assert again.total == tree.total
    if tree.total > 0:
        targets = np.linspace(0, tree.total, 57)
        assert again.find(targets).tolist() == tree.find(targets).tolist()
