"""Jobs on a Ray cluster give the verdicts of a serial run, even if a machine is lost; unusable clusters are refused."""

import json
import socket
import sys
import threading
import time
from contextlib import nullcontext

import pytest
from calls import told
from faults import lasting

from bertsecrets.cli.main import main
from bertsecrets.jobs import on_ray

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick", "same_threads")]
FEW = ("--task", "rte", "--claim", "D2-rte", "--claim", "E1-rte", "--claim", "C1", "--seeds", "2", "--threads", "1")
quiet = pytest.mark.filterwarnings("ignore")  # Ray warns about sockets and processes that it leaves open


def judged(command, shared, room, *more):
    room.mkdir(exist_ok=True)
    arguments = [command, *shared, "--store", room / "runs", *FEW, "--json", room / "verdicts.json", *more]
    code = main([str(argument) for argument in arguments])
    return code, lasting(json.loads((room / "verdicts.json").read_text())["verdicts"])


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.victim = made.add_node(num_cpus=1)
    made.wait_for_nodes(timeout=300)
    yield made
    made.shutdown()


@pytest.fixture
def closed_port():
    """A local port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused, and no one else gets it
        yield bound.getsockname()[1]


@quiet
def test_a_cluster_that_cannot_see_the_store_is_refused_in_one_line(capsys, cluster, shared, tmp_path, monkeypatch):
    elsewhere = tmp_path / "of another machine" / "seen"
    monkeypatch.setattr(on_ray, "_marker", lambda root: nullcontext(elsewhere))
    line = told(capsys, "run", *shared, "--store", tmp_path / "runs", *FEW, "--ray", cluster.address)
    assert "cannot access the store" in line


@quiet
def test_losing_one_of_two_machines_does_not_change_the_verdicts(capsys, cluster, shared, tmp_path, closed_port):
    serial = judged("run", shared, tmp_path / "serial")
    stored = judged("run", shared, tmp_path / "serial", "--ray", f"127.0.0.1:{closed_port}")
    assert stored == serial  # which needs no cluster
    store = tmp_path / "ray" / "runs"
    lost = threading.Event()

    def lose_one():
        while not any(path.is_dir() for path in (store / "checkpoints").glob("[!.]*")):
            time.sleep(0.05)
        cluster.remove_node(cluster.victim, allow_graceful=False)
        lost.set()

    threading.Thread(target=lose_one, daemon=True).start()
    capsys.readouterr()
    assert judged("run", shared, tmp_path / "ray", "--ray", cluster.address) == serial
    assert lost.wait(300)  # the limit only guards against hanging
    err = capsys.readouterr().err
    assert "on 2 machines" in err
    jobs = int(err.split(" jobs to do")[0].split()[-1])
    assert f"{jobs} of {jobs}: " in err
    assert not list(store.glob(".seen-*"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ray", "127.0.0.1:{port}"], "no Ray cluster responds at 127.0.0.1:"),
        (["--ray", "127.0.0.1:port"], "no Ray cluster responds at 127.0.0.1:port"),
        (["--ray", "head"], "--ray head is not an address"),
        (["--ray", "auto", "--gpus", "-1"], "--gpus -1 is out of range"),
    ],
)
def test_an_unusable_cluster_is_refused_in_one_line(capsys, shared, tmp_path, closed_port, arguments, says):
    arguments = [argument.format(port=closed_port) for argument in arguments]
    assert says in told(capsys, "run", *shared, "--store", tmp_path / "runs", *FEW, *arguments)
    assert not list(tmp_path.rglob(".seen-*"))


def test_a_missing_ray_is_refused_before_anything_starts(capsys, shared, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    line = told(capsys, "run", *shared, "--store", tmp_path / "runs", *FEW, "--ray")
    assert line.endswith('running on a Ray cluster needs ray, which is not installed: pip install "bertsecrets[ray]"')
    assert not (tmp_path / "runs").exists()
