"""Jobs on a Ray cluster: the verdicts of a serial run, also where a machine is lost; clusters that cannot be used."""

import json
import socket
import threading
import time
from importlib.util import find_spec

import pytest
from calls import told
from faults import lasting

from bertsecrets.cli.main import main

pytestmark = pytest.mark.usefixtures("quick", "same_threads")
FEW = ("--task", "rte", "--claim", "D2-rte", "--claim", "E1", "--claim", "C1", "--seeds", "2", "--threads", "1")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")


def judged(command, shared, room, *more):
    room.mkdir(exist_ok=True)
    words = [command, *shared, "--store", room / "runs", *FEW, "--json", room / "verdicts.json", *more]
    code = main([str(word) for word in words])
    return code, lasting(json.loads((room / "verdicts.json").read_text())["verdicts"])


@pytest.fixture
def cluster():
    """Three machines with a processor each, all on this one."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.victim = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@needs_ray
@pytest.mark.filterwarnings("ignore")  # Ray's own, of sockets and processes that it leaves to others
def test_three_machines_of_which_one_is_lost_reach_the_verdicts_of_a_serial_run(
    capsys, cluster, shared, tmp_path, monkeypatch
):
    serial = judged("report", shared, tmp_path / "serial")
    store = tmp_path / "ray" / "runs"
    lost = threading.Event()

    def lose_one():
        while not any(path.is_dir() for path in (store / "checkpoints").glob("[!.]*-s[12]-*")):
            time.sleep(0.05)
        cluster.remove_node(cluster.victim, allow_graceful=False)
        lost.set()

    threading.Thread(target=lose_one, daemon=True).start()
    capsys.readouterr()
    assert judged("run", shared, tmp_path / "ray", "--ray", cluster.address) == serial
    assert lost.wait(30)
    told = capsys.readouterr().err
    print(told)
    assert "on 3 machines" in told
    jobs = int(told.split(" jobs to do")[0].split()[-1])
    assert f"{jobs} of {jobs}: " in told
    assert not list(store.glob(".seen-*"))


@needs_ray
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_does_not_see_the_store_is_one_line(capsys, cluster, shared, tmp_path, monkeypatch):
    from contextlib import contextmanager

    from bertsecrets.planning import on_ray

    @contextmanager
    def elsewhere(root):
        yield tmp_path / "of another machine" / "seen"

    monkeypatch.setattr(on_ray, "_marker", elsewhere)
    line = told(capsys, "run", *shared, "--store", tmp_path / "runs", *FEW, "--ray", cluster.address)
    assert "does not see the store" in line


def closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@needs_ray
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--ray", f"127.0.0.1:{closed_port()}"], "no Ray cluster answers at 127.0.0.1:"),
        (["--ray", "nowhere.invalid:6379"], "no Ray cluster answers at nowhere.invalid:6379"),
        (["--ray", "127.0.0.1:port"], "no Ray cluster answers at 127.0.0.1:port"),
        (["--ray", "head"], "--ray head is not an address"),
        (["--ray", "auto", "--gpus", "-1"], "--gpus -1 is out of range"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line(capsys, shared, tmp_path, words, says):
    assert says in told(capsys, "run", *shared, "--store", tmp_path / "runs", *FEW, *words)
    assert not list(tmp_path.rglob(".seen-*"))


def test_a_missing_ray_is_one_line_before_anything_starts(capsys, shared, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    line = told(capsys, "run", *shared, "--store", tmp_path / "runs", *FEW, "--ray")
    assert line.endswith('running on a Ray cluster needs ray, which is not installed: pip install "bertsecrets[ray]"')
    assert not (tmp_path / "runs").exists()
