"""Count the functions and package crossings between a row of RTE and C1's verdict.

    python benchmarks/walk.py          # the counts
    python benchmarks/walk.py --list   # also every function, in order of first call

C1 runs on RTE twice in this process, with the tests' tiny model and corpus: with `pytest benchmarks -k C1-rte` and an
empty store, and with `Session.judge` and a stored checkpoint, which is the path of a validation row. Every function of
the package is listed once. The counts are

- crossings: calls between packages, counting each pair of caller and callee once;
- upward: crossings to a package later in the import order, through a callback, an argument or a subclass;
- moves: consecutive functions in the list that are in different packages.
"""

import inspect
import shutil
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

PROJECT = Path.cwd()
PACKAGE = PROJECT / "bertsecrets"
sys.path[:0] = [str(PROJECT), str(PROJECT / "tests"), str(PROJECT / "tests" / "support")]
Name = tuple[str, str]  # a module, without the package's name, and a function in it


class Walk:
    """The called functions, in order of first call, and the calls between them."""

    def __init__(self) -> None:
        self.functions: dict[Name, None] = {}
        self.calls: dict[tuple[Name, Name], None] = {}
        self._names: dict[CodeType, Name | None] = {}

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        """Record a call reported by `sys.setprofile`."""
        if event != "call" or (called := self._name(frame.f_code)) is None:
            return
        self.functions.setdefault(called)
        above = frame.f_back
        while above is not None:
            if caller := self._name(above.f_code):
                if caller != called:
                    self.calls.setdefault((caller, called))
                return
            above = above.f_back

    def _name(self, code: CodeType) -> Name | None:
        """Return a function's module and name; None outside the package. Inner functions count as the outer one."""
        if code not in self._names:
            path = Path(code.co_filename)
            function = code.co_qualname.split(".<locals>")[0]
            inside = path.is_relative_to(PACKAGE) and bool(code.co_flags & inspect.CO_OPTIMIZED)  # no class, no module
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts) if inside else ""
            self._names[code] = (module, function) if inside else None
        return self._names[code]


def walks() -> dict[str, Walk]:
    """Return the walks to C1's verdict on RTE, by name."""
    import pytest
    import yaml
    from tiny import save_bert

    from bertsecrets import settings
    from bertsecrets.session import Session
    from bertsecrets.texts.corpus import write_corpus

    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        folder = Path(place)
        data = yaml.safe_load(settings.project_path("params.yaml").read_text(encoding="utf-8"))
        data["finetune"] |= {"epochs": 1, "batch_size": 16}
        data |= {"seeds": "auto", "budget": None}
        (folder / "params.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
        patch.setenv("BERTSECRETS_PARAMS", str(folder / "params.yaml"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        model, glue = save_bert(folder / "bert"), write_corpus(folder / "glue", 32, 24)
        given = ["--model", str(model), "--glue", str(glue), "--store", str(folder / "runs"), "--device", "cpu"]
        quiet = ("--allow-unofficial-data", "-W", "ignore::pytest.PytestAssertRewriteWarning")
        words = ["benchmarks", "-k", "C1-rte", "-q", "-p", "no:cacheprovider", *given, *quiet, "--offline"]
        by_pytest = noted(lambda: pytest.main([*words, "--benchmark-disable"]))  # which would pause the profile
        shutil.rmtree(folder / "runs" / "measurements")
        options = {"store": folder / "runs", "device": "cpu", "allow_unofficial_data": True, "offline": True}
        session = Session(model=str(model), glue=glue, **options)
        return {"pytest": by_pytest, "Session.judge": noted(lambda: session.judge("C1", "rte", seeds=1))}


def noted(work: Callable[[], object]) -> Walk:
    """Return the walk of a call."""
    walk = Walk()
    sys.setprofile(walk.note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return walk


def main() -> None:
    """Print the counts."""
    from test_house import ORDER

    def layer(name: Name) -> int:
        package = name[0].partition(".")[0]
        return ORDER.index(package) if package in ORDER else len(ORDER)

    for title, walk in walks().items():
        crossings = [(caller, called) for caller, called in walk.calls if layer(caller) != layer(called)]
        upward = [(caller, called) for caller, called in crossings if layer(called) > layer(caller)]
        if "--list" in sys.argv:
            for module, function in walk.functions:
                print(f"  {module}: {function}")
            for caller, called in upward:
                print(f"  upward: {'.'.join(caller)} -> {'.'.join(called)}")
        places = [layer(name) for name in walk.functions]
        moves = sum(before != after for before, after in pairwise(places))
        counts = f"{len(places)} functions, {len(crossings)} crossings, {len(upward)} upward, {moves} moves"
        print(f"{title}: {counts}")


if __name__ == "__main__":
    main()
