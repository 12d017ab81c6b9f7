"""Sessions, used by the command line, the pytest plugin and Python code to measure subjects and judge claims."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from bertsecrets.arguments import checked
from bertsecrets.caches import CheckpointCache, MeasurementCache
from bertsecrets.claims import requirements
from bertsecrets.claims.eligibility import Eligibility, ModelFacts, Skipped
from bertsecrets.claims.judge import judge, until_replaced
from bertsecrets.claims.loading import find_case, select_cases
from bertsecrets.claims.schema import Case
from bertsecrets.claims.sequential import ANALYSES, MOST_REPLACED
from bertsecrets.claims.verdict import Verdict, rows_of
from bertsecrets.errors import MissingError, UserError
from bertsecrets.judging import JudgedRun, Verdicts, skipped
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import configuration
from bertsecrets.models.in_memory import Held
from bertsecrets.open_session import TRIED_ROWS, OpenSession, log_unstored, without_place
from bertsecrets.option_checks import check_initialisation, check_seed, seed_range
from bertsecrets.options import TRAINING_OPTIONS
from bertsecrets.progress import log
from bertsecrets.reading import expanded, seconds
from bertsecrets.report import show_in_notebooks
from bertsecrets.store.entries import Store
from bertsecrets.texts.tasks import ALL_TASKS, GLUE_TASKS
from bertsecrets.texts.tasks import task as task_named
from bertsecrets.types import AUTO, Measurement, Request, Subject

show_in_notebooks()


class Session(OpenSession):
    """A session, which measures and judges with one set of options: model, data, device and store.

    ```python
    import bertsecrets as bs

    session = bs.Session(model="minilm", glue="GLUE")
    session.measure("attention-change", task="rte").values["cosine"]  # [layer, head]
    session.judge("C1", task="rte", seeds=3)
    ```

    Attributes:
        options: The options, including the number of CPU threads.
        jobs: The number of jobs that the command line and pytest run at once.
    """

    @property
    def seeds(self) -> Sequence[int]:
        """The seeds in the options or in `params.yaml`; for `auto`, the seeds of the last analysis."""
        wanted = self.wanted_seeds
        if isinstance(wanted, list):
            return wanted
        return seed_range(ANALYSES[-1] if isinstance(wanted, str) else wanted)

    @property
    def interims(self) -> list[Sequence[int]]:
        """The seeds of each analysis.

        If seeds are added one by one, the first analysis has one seed, and each later analysis has one more. Otherwise,
        the first analysis has all requested seeds. If the seeds are given as a number, each later analysis adds a spare
        seed. Spare seeds can replace seeds with which the model learned nothing.
        """
        wanted = self.wanted_seeds
        if isinstance(wanted, list):
            return [wanted]
        first, last = (1, ANALYSES[-1]) if isinstance(wanted, str) else (wanted, wanted)
        return [seed_range(count) for count in range(first, last + MOST_REPLACED + 1)]

    @property
    def budget(self) -> float | None:
        """The time limit for adding seeds, in seconds. None if unlimited, or if no seeds are added."""
        given = self.options.budget or self.settings.budget
        return seconds(given) if given is not None and self.wanted_seeds == AUTO else None

    def eligibility(self, case: Case) -> Eligibility:
        """Return whether a case can be judged: whether its inputs are available, and whether it applies to the model.

        Raises:
            UserError: If the case is only about certain architectures, and the model's architecture is unknown.
        """
        claim, facts = case.claim, ModelFacts()
        if claim.architectures:
            facts = replace(facts, architecture=configuration.open_config(self.ref(self.model)).model_type)
        if claim.needs_weights:
            with suppress(UserError):
                facts = replace(facts, weights=self.ref(self.model).identity())
        if claim.needs_shape:
            facts = replace(facts, shape=self.shape)
        return requirements.eligibility(self, case, facts)

    @checked
    def subject(self, task_name: str | None, init: str = "pretrained", seed: int = 1) -> Subject:
        """Return a subject: the session's model on a task or, without a task, the bare encoder.

        Raises:
            UserError: If the task or the initialisation is unknown, or if the seed is out of range.
        """
        check_seed(seed)
        name = check_initialisation(init)
        if task_name is None:
            return Subject(self.model, ALL_TASKS, "untrained", seed)
        return Subject(self.model, task_named(task_name).name, name, seed)

    @checked
    def measure(
        self,
        measure: str,
        task: str | None = None,
        *,
        init: str = "pretrained",
        seed: int = 1,
        checkpoint: "Path | nn.Module | None" = None,
        **options: Any,
    ) -> Measurement:
        """Return a measurement of the session's model, making it if it is not in the store.

        Args:
            measure: Name of the measure, such as `attention-change`.
            task: GLUE task or own task. Leave it out for measures of the bare encoder or of the suite itself. The task
                is optional if the session is about one task.
            init: Initialisation: `pretrained`, `random`, `frozen`, `untrained`, ...
            checkpoint: Folder, or model in memory, to measure instead of a checkpoint trained by the suite.
            options: Options for the measure, such as `padded_to=200`.

        Raises:
            UserError: If the measure, the task or an option is unknown, or if data, a model or a tool is missing.
        """
        found = get_measure(measure)
        if task is None and found.on_task and len(self.options.scope) == 1:
            task = self.options.scope[0]
        subject = self.subject(task, init, seed)
        found.check_request(task, check_initialisation(init), seed, checkpoint=checkpoint)
        if not isinstance(checkpoint, nn.Module):
            return self.measurement(measure, subject, expanded(checkpoint) if checkpoint else None, **options)
        rows = self.resources.rows.split(subject.task, "dev", TRIED_ROWS) if found.on_task else None
        held = Held(checkpoint, None, self.ref(self.model), rows)
        if held.storable and self._storable:
            return self.measurement(measure, subject, held.folder, **options)
        log_unstored(held, *self._objects.values())
        with TemporaryDirectory() as place, self._measured(), held.measured():
            resources = replace(self.resources, kept=Path(place))
            cache = CheckpointCache(Store(Path(place)), resources, self.ref)
            request = Request(measure, subject, tuple(options.items()))
            return without_place(MeasurementCache(cache).get(request, held.folder))

    @checked
    def judge(
        self,
        claim: str,
        task: str | None = None,
        *,
        seeds: int | None = None,
        checkpoint: "Path | nn.Module | None" = None,
    ) -> Verdict:
        """Return the verdict on a claim, making measurements that are not in the store.

        Args:
            claim: Claim id (`C1`), including the variant if there are several (`D1-untrained`).
            task: One of the claim's tasks. The task may be left out if the claim has only one task, or if the session
                is about a single task.
            seeds: If given, judge on seeds 1 to `seeds` instead of the session's seeds. If the session's seeds are
                `auto`, seeds are added until the claim is decided. A seed is not added if it would exceed the budget,
                assuming that it takes as long as the last seed.
            checkpoint: Folder, or model in memory, to judge instead of checkpoints that the suite trains.

        Raises:
            UserError: If the claim is unknown or ambiguous; if data, a model or a tool is missing; or if `seeds` is
                given although the session judges a single checkpoint.
        """
        session = self._with(checkpoint, task, seeds)
        case = find_case(claim, task, session.options.scope)
        with session._measured():
            result = JudgedRun(session, [case]).result(case)
        if isinstance(result, Skipped):
            raise MissingError(result.reason)
        if result.error is not None:
            raise result.error
        return result

    @checked
    def judge_all(
        self,
        task: str | None = None,
        claims: Iterable[str] | str | None = None,
        *,
        seeds: int | None = None,
        checkpoint: "Path | nn.Module | None" = None,
    ) -> Verdicts:
        """Return the verdicts on all claims that can be judged on the model, and log which claims are skipped.

        Args:
            task: Judge only claims on this task and claims about the bare encoder. The default is the task of the
                session's checkpoint. Without a checkpoint, all of the user's own tasks are judged or, if there are
                none, all GLUE tasks.
            claims: If given, only these claims or families are judged, such as `["C", "D1"]` or `"C"`.
            seeds: As in `judge`.
            checkpoint: As in `judge`.

        Raises:
            UserError: If the task or a claim is unknown, or if `claims` is empty.
        """
        wanted = [claims] if isinstance(claims, str) else [*(() if claims is None else claims)]
        if claims is not None and not wanted:
            raise UserError("`claims` is empty: name claims or families to judge, or leave out `claims` to judge all")
        session = self._with(checkpoint, task, seeds)
        names = [task] if task else session.options.scope or [glue.name for glue in GLUE_TASKS]
        tasks = {task_named(name).name for name in names}
        chosen = select_cases(wanted, tasks)
        run = JudgedRun(session, [case for case in chosen if tasks.issuperset(case.on_tasks)])
        for reason, without in run.skipped().items():
            log.info(skipped(without, reason))
        with session._measured():
            run.judge(log.info)
        if run.ended is not None:
            raise run.ended
        return Verdicts(run.verdicts)

    def _with(self, checkpoint: "Path | nn.Module | None", task: str | None, seeds: int | None) -> "Session":
        """Return a session for the given checkpoint or number of seeds. Return this session if neither is given."""
        if checkpoint is None and seeds is None:
            return self
        if checkpoint is None:
            session = copy(self)
            session.options = replace(self.options, seeds=seeds)
            return session
        given: dict[str, Any] = dict.fromkeys(TRAINING_OPTIONS) | {"keep_checkpoints": "full", "seeds": seeds}
        held, tokenizer = self._objects.get("model"), None
        if held is not None:
            given["model"], tokenizer = held.model, held.tokenizer
        elif self.options.model is None and self.options.checkpoint is None:
            given["model"] = self.settings.model
        if task is not None or self.options.checkpoint is not None:
            given["checkpoint_task"] = task or self.options.checkpoint_task
        return Session(
            self._lasting_options, settings=self.settings, tokenizer=tokenizer, checkpoint=checkpoint, **given
        )

    def judge_case(self, case: Case, seeds: Sequence[int]) -> Verdict:
        """Return the verdict on a case, based on these seeds. Make the measurements that are not stored.

        If a checkpoint was given, the verdict applies only to that checkpoint. If the number of seeds is fixed, the
        case stays open as long as a spare seed can replace a seed with which the model learned nothing. If none of the
        trained models learned anything, the case does not stay open.
        """
        measured = requirements.measure_case(self, case, self.model, seeds)
        verdict = judge(case, measured, self.settings.judge, checkpoint=self.options.checkpoint is not None)
        wanted = self.wanted_seeds
        return until_replaced(verdict, wanted, len(measured)) if isinstance(wanted, int) else verdict

    def rows_of(self, case: Case) -> dict[str, Any]:
        """Return the rows that a case will be measured on, as a verdict records them; empty if they are unknown."""
        try:
            required = requirements.required_measurements(self, case)
            wanted = [Request(each.measure, each.subject(self.model, 1), (*each.options.items(),)) for each in required]
            return rows_of([self.measurements.provenance(request) for request in wanted])
        except UserError:  # raised again when the case is judged
            return {}
