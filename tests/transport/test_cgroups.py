import pytest

from ritornello.agent import machine
from ritornello.transport import cgroups as limits
from ritornello.transport.cgroups import container_free_bytes, cpu_quota
from ritornello.transport.shared import free_shared_memory_bytes


def limit_memory(folder, limit, used, stat="anon 5\ninactive_file 50000\n"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("max", limit), ("current", used), ("stat", stat)):
        (folder / f"memory.{name}").write_text(f"{text}\n")


@pytest.fixture
def cgroups(monkeypatch, tmp_path):
    """A machine whose groups a test writes down; this process is in app.slice/run.service."""
    monkeypatch.setattr(limits, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(limits, "OWN_CGROUPS", tmp_path / "own")
    (tmp_path / "own").write_text("1:name=systemd:/elsewhere\n0::/app.slice/run.service\n")
    return tmp_path / "cgroup"


def test_the_limit_of_the_container_counts_but_droppable_pages_do_not(cgroups):
    limit_memory(cgroups, 1_000_000, 900_000)
    assert free_shared_memory_bytes() == container_free_bytes() == 150_000
    limit_memory(cgroups, "max", 900_000)
    assert container_free_bytes() is None
    assert free_shared_memory_bytes() > 1_000_000


def test_the_tightest_limit_of_all_groups_around_a_process_counts(cgroups):
    limit_memory(cgroups, "max", 0)
    limit_memory(cgroups / "app.slice", 500_000, 100_000, "")
    limit_memory(cgroups / "app.slice" / "run.service", 900_000, 100_000, "")
    assert container_free_bytes() == 400_000
    limit_memory(cgroups / "app.slice" / "run.service", 150_000, 100_000, "")
    assert container_free_bytes() == 50_000
    limit_memory(cgroups / "other.slice", 10, 10, "")
    assert container_free_bytes() == 50_000


def test_the_first_version_of_groups_counts_as_well(cgroups):
    folder = cgroups / "memory" / "docker"
    folder.mkdir(parents=True)
    (cgroups.parent / "own").write_text("4:memory:/docker\n3:cpu:/docker\n")
    (folder / "memory.limit_in_bytes").write_text("7000\n")
    (folder / "memory.usage_in_bytes").write_text("5000\n")
    assert container_free_bytes() == 2000


@pytest.mark.parametrize(
    ("text", "cores"),
    [("400000 100000", 4), ("150000 100000", 2), ("10000 100000", 1), ("max 100000", None)],
)
def test_the_quota_of_a_container_bounds_the_cores(cgroups, monkeypatch, text, cores):
    monkeypatch.setattr(machine, "usable_cores", lambda: range(64))
    assert (cpu_quota(), machine.cpu_count()) == (None, 64)  # there are no such files
    cgroups.mkdir()
    (cgroups / "cpu.max").write_text(f"{text}\n")
    assert (cpu_quota(), machine.cpu_count()) == (cores, cores or 64)
    inner = cgroups / "app.slice" / "run.service"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("1 1\n")
    assert machine.cpu_count() == 1
    monkeypatch.setattr(machine, "usable_cores", lambda: range(1))
    (inner / "cpu.max").write_text("9 1\n")
    assert machine.cpu_count() == 1
