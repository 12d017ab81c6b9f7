"""Parallel jobs on a Ray cluster whose machines share the store."""

import functools
import logging
import os
import socket
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from bertsecrets.devices import best_device, device_name
from bertsecrets.errors import RunError, UserError, first_line, from_extra
from bertsecrets.jobs.plan import JobResult, Plan, carry_out, waits_for
from bertsecrets.jobs.worker import JobRunner
from bertsecrets.open_session import with_absolute_paths
from bertsecrets.options import RunOptions
from bertsecrets.progress import counted, log
from bertsecrets.session import Session
from bertsecrets.store.files import guarded_writes
from bertsecrets.types import Request

TASK_RETRIES = 3  # retries of a job whose machine or process is lost
CLUSTER_SECONDS = 10.0  # seconds to wait for a cluster to respond
INHERITED_PREFIXES = ("BERTSECRETS_", "HF_")  # prefixes of environment variables that jobs inherit


def check_ray(gpus: float | None) -> None:
    """Check that Ray is installed and that the number of GPUs per job is in range."""
    if gpus is not None and not 0 <= gpus <= 64:
        rule = "give a number from 0 to 64, such as 0.25 to run four jobs on each GPU"
        raise UserError(f"--gpus {gpus:g} is out of range: {rule}")
    with from_extra("ray"):
        import ray  # noqa: F401


@contextmanager
def ray_cluster(session: Session, *, address: str | None, gpus: float | None) -> Iterator[Callable[[Plan], None]]:
    """Connect to a Ray cluster and yield a function that runs the jobs of a plan there.

    Args:
        address: Address of the cluster. By default, the address in RAY_ADDRESS is used or, if this variable is not
            set, a new cluster is started on this machine.
        gpus: Number of GPUs per job. The default is 1 if the session's device is a GPU, otherwise 0.
    """
    on_gpu = session.resources.device.type == "cuda"
    share = {"num_cpus": session.options.threads or 1, "num_gpus": float(on_gpu) if gpus is None else gpus}
    options = with_absolute_paths(session.options)
    with _connected(address) as ray, _marker(session.store.root) as marker:
        nodes = _check_nodes(ray, options, marker, share, device_name(session.resources.device))
        task = ray.remote(max_retries=TASK_RETRIES)(_work)

        def run_on_cluster(left: Plan) -> None:
            log.info(
                f"{counted(len(left), 'job')} to do on {counted(nodes, 'machine')}, "
                f"each job with --threads {share['num_cpus']}"
            )
            refs: dict[Request, Any] = {}
            for request in left:
                before = [refs[other] for other in waits_for(left, request)]
                refs[request] = task.options(name=str(request), **share).remote(request, options, str(marker), *before)
            carry_out(session, left, _outcomes(ray, refs))

        yield run_on_cluster


def _outcomes(ray: Any, refs: dict[Request, Any]) -> Generator[JobResult]:
    """Yield the outcomes of Ray tasks as they complete. Closing the generator cancels the remaining tasks."""
    request_of = {ref: request for request, ref in refs.items()}
    waiting = list(request_of)
    try:
        while waiting:
            ready, waiting = ray.wait(waiting, timeout=1.0)
            for ref in ready:
                try:
                    yield ray.get(ref)
                except ray.exceptions.RayError as error:  # lost again after the last retry
                    request = request_of[ref]
                    lost = UserError(f"{request}: lost on the Ray cluster: {first_line(error)}")
                    yield JobResult(request, error=lost)
    finally:
        for ref in waiting:
            with suppress(Exception):
                ray.cancel(ref)  # raises KeyboardInterrupt in the task, which then cleans up
        if waiting:
            ray.wait(waiting, num_returns=len(waiting), timeout=CLUSTER_SECONDS)


def _work(request: Request, options: RunOptions, marker: str, *before: JobResult) -> JobResult:
    """Run a job on a machine in the cluster. If the training of its checkpoint has failed, return that error."""
    errors = (outcome.error for outcome in before if outcome.request.measure is None)
    error = next(filter(None, errors), None)
    if error is None and not Path(marker).exists():
        error = RunError(_no_store(Path(marker).parent))
    return JobResult(request, error=error) if error is not None else _runner(options).run(request)


_runner = functools.cache(JobRunner)  # one runner per process, so that a process reads the data only once


# ---------------------------------------------------------------------- the cluster


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    with from_extra("ray"):
        import ray
    address = address or os.environ.get("RAY_ADDRESS") or None
    if address is not None:
        _check_answers(address)
    variables = {name: value for name, value in os.environ.items() if name.startswith(INHERITED_PREFIXES)}
    try:
        ray.init(
            address=address or "local",
            runtime_env={"env_vars": variables},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # errors of Ray, sockets or gRPC
        raise UserError(
            f"cannot use a Ray cluster {f'at {address}' if address else 'on this machine'}: {first_line(error)}"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Check that a server is listening at an address, because Ray itself would wait for a long time."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        if address != "auto":
            raise UserError(f"--ray {address} is not an address: give HOST:PORT, such as 10.0.0.1:6379, or auto")
        return
    try:
        with closing(socket.create_connection((host, int(port)), timeout=CLUSTER_SECONDS)):
            return
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(
            f"no Ray cluster responds at {address} ({reason}): start one with ray start --head, or give the address of "
            "a running one"
        ) from error


def _check_nodes(ray: Any, options: RunOptions, marker: Path, share: dict[str, float], device: str) -> int:
    """Check that all machines that can run jobs see the store and have the same device. Return their number."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = {"CPU": share["num_cpus"], "GPU": share["num_gpus"]}
    alive = [node for node in ray.nodes() if node["Alive"]]
    large = [node for node in alive if all(node["Resources"].get(name, 0) >= least for name, least in asked.items())]
    if not large:
        wanted = f"{share['num_cpus']} processors" + (f" and {share['num_gpus']:g} GPUs" if share["num_gpus"] else "")
        raise UserError(f"no machine of the Ray cluster has {wanted} for a job: reduce --threads or --gpus")
    probe = ray.remote(_probe)
    probes = [
        probe.options(**share, scheduling_strategy=strategy(node_id=node["NodeID"], soft=False)).remote(
            str(marker), options
        )
        for node in large
    ]
    for name, ref in zip((node["NodeManagerHostname"] for node in large), probes, strict=True):
        try:
            visible, its_device = ray.get(ref)
        except ray.exceptions.RayError as error:
            raise UserError(f"machine {name} of the Ray cluster cannot run jobs: {first_line(error)}") from error
        if not visible:
            raise UserError(_no_store(marker.parent, name))
        if its_device != device:
            raise UserError(
                f"machine {name} of the Ray cluster computes on {its_device}, but this machine computes on {device}, "
                "and results for different devices are stored separately: use machines of the same kind"
            )
    return len(large)


def _probe(marker: str, options: RunOptions) -> tuple[bool, str]:
    """Return whether this machine can access the store, and the name of the machine's device."""
    import torch

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return Path(marker).exists(), device_name(best_device(options.device))


def _no_store(store: Path, name: str | None = None) -> str:
    machine = name or socket.gethostname()
    return f"machine {machine} of the Ray cluster cannot access the store {store}: choose a shared folder with --store"


@contextmanager
def _marker(root: Path) -> Iterator[Path]:
    """Yield a temporary file in the store. A machine that can see this file has access to the same store."""
    marker = root.resolve() / f".seen-{uuid.uuid4().hex}"
    with guarded_writes(root):
        root.mkdir(parents=True, exist_ok=True)
        marker.touch()
    try:
        yield marker
    finally:
        marker.unlink(missing_ok=True)
