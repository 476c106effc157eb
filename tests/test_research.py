"""The research wing stands on the product as it is; `make research-test` tests the wing itself."""

from research import tables
from research.compare_peers import parse
from research.queue.plan import SHIPPED_QUEUE, load_queue


def test_the_queue_of_experiments_has_flags_that_there_are():
    assert load_queue(SHIPPED_QUEUE).runs


def test_other_systems_can_be_named():
    assert [system.name for system in parse(["--peers=sb3_a2c"]).peers] == ["sb3_a2c"]


def test_the_tables_of_results_are_those_of_the_files():
    for path, content in tables.pages().items():
        assert path.read_text("utf-8") == content, f"{path.name}: run `make docs`"


def test_what_was_decided_has_an_answer():
    is_open = {run.experiment for run in load_queue(SHIPPED_QUEUE).runs}
    unanswered = [name for name, one in tables.entries().items() if not one.get("answer")]
    assert set(unanswered) == is_open, "an entry of decided.yaml needs a key `answer`"
