"""The commands about attention patterns: `annotate`, `import-patterns`, `train-patterns`, `sheets`."""

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.cli.fetch import ROW_OPTIONS
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_options, path
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject

if TYPE_CHECKING:
    from bertsecrets.patterns.annotation.session import Annotation


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    annotating = commands.add_parser("annotate", help="label attention maps by eye, on a local page")
    annotating.add_argument("folder", type=path, help="a set of maps; drawn now with --task where there is none")
    annotating.add_argument("--task", action="append", help="draw maps on this task; may be given several times")
    annotating.add_argument("--per-task", type=int, default=128, metavar="N", help="maps of each fine-tuned checkpoint")
    annotating.add_argument(
        "--pretrained-per-task",
        type=int,
        default=32,
        metavar="N",
        help="of the pretrained model, on each task's inputs",
    )
    annotating.add_argument("--max-tokens", type=int, default=100, metavar="N", help="pass over longer inputs")
    annotating.add_argument("--seed", type=int, default=1, help="of the draw")
    annotating.add_argument("--draw-only", action="store_true", help="draw the set and end")
    annotating.add_argument("--annotator", metavar="NAME", help="who labels")
    annotating.add_argument("--second", type=int, metavar="N", help="label N maps blind, as the second annotator")
    annotating.add_argument(
        "--anew", action="store_true", help="replace the labels that are there, from the first key on"
    )
    annotating.add_argument("--port", type=int, default=0, help="of the page (default: any that is free)")
    add_options(annotating.add_argument, ROW_OPTIONS)
    annotating.set_defaults(run=annotate)

    importer = commands.add_parser("import-patterns", help="take over annotated maps in the form that P20 published")
    importer.add_argument("source", type=path, help="folder or .tar.gz with labels.txt and one .npy a map")
    importer.add_argument("folder", type=path, help="where the set goes")
    importer.set_defaults(run=import_patterns)

    training = commands.add_parser("train-patterns", help="judge and train the classifier of attention patterns")
    training.add_argument("--data", type=path, metavar="DIR", help="annotated maps (default: the suite's own)")
    training.add_argument("--output", type=path, metavar="DIR", default=Path("pattern-classifier"))
    training.add_argument("--cnn-epochs", type=int, metavar="N", help="of the paper's classifier; 0 leaves it out")
    training.set_defaults(run=train)

    drawing = commands.add_parser("sheets", help="contact sheets of a set of maps, as PNG")
    drawing.add_argument("folder", type=path, help="a set of maps")
    drawing.add_argument("output", type=path, help="a new folder for what is drawn")
    drawing.add_argument("--count", type=int, metavar="N", help="only N maps, drawn at random")
    drawing.add_argument("--seed", type=int, default=1, help="of the order and the draw")
    drawing.add_argument("--by-class", action="store_true", help="a picture of each class and of hard cases instead")
    drawing.add_argument(
        "--predicted",
        action="store_true",
        help="a picture of ten maps of each class that the classifier took them for, heads held out",
    )
    drawing.set_defaults(run=sheets)


def annotate(options: argparse.Namespace) -> None:
    """Draw a set where there is none, and serve its page until it is interrupted."""
    from bertsecrets.patterns.annotation.server import Server
    from bertsecrets.patterns.annotation.session import Annotation, alone

    if options.task:
        _check_new(options.folder, "leave --task out to go on with it, or ")
        _draw(options)
    elif not options.folder.is_dir():
        raise UserError(f"no set of maps at {options.folder}: give --task (and --model) to draw one")
    if options.draw_only:
        return
    with alone(options.folder):
        work = Annotation.open(options.folder, options.annotator, options.second, options.anew)
        with Server(work, options.port) as server:
            print(f"{len(work)} maps, {work.done} labelled, by {work.annotator}")
            print(f"label them at {server.url} (Ctrl-C ends; every label is saved at once)", flush=True)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print()
    print(summary(work))


def _draw(options: argparse.Namespace) -> None:
    from bertsecrets.models.loading import OpenModel, open_checkpoint
    from bertsecrets.patterns.annotation.sampling import draw
    from bertsecrets.session import Session

    if min(options.per_task, options.pretrained_per_task) < 0 or options.per_task + options.pretrained_per_task == 0:
        raise UserError("--per-task and --pretrained-per-task take 0 or more, and not both 0")
    session = Session(RunOptions.of(options))
    tasks = [task(name).name for name in dict.fromkeys(options.task)]
    session.check_model()
    plan = {Subject(session.model, name): options.per_task for name in tasks if options.per_task}
    if options.pretrained_per_task:
        plan |= {Subject(session.model, name, "untrained"): options.pretrained_per_task for name in tasks}

    def opened(subject: Subject) -> OpenModel:
        return open_checkpoint(session.checkpoint(subject), task(subject.task), session.ref(subject.model))

    maps = draw(
        plan,
        open_checkpoint=opened,
        rows=lambda name: session.resources.rows.split(name, "dev"),
        max_length=session.settings.attention.max_length,
        device=session.resources.device,
        seed=options.seed,
        max_tokens=options.max_tokens,
    )
    maps.save(options.folder)
    print(f"{options.folder}: {len(maps)} maps drawn")


def _check_new(folder: Path, instead: str = "") -> None:
    """Make sure that a folder is free for a set of maps; one that is there may hold labels.

    Raises:
        UserError: it is not.
    """
    from bertsecrets.patterns.annotation.map_set import shards
    from bertsecrets.store.files import check_free

    if shards(folder):
        raise UserError(f"{folder} holds a set already: {instead}name a new folder")
    check_free(folder, ())


def summary(work: "Annotation") -> str:
    """Return what an annotator has done, in a line or two."""
    agreed = work.agreement()
    lines = [f"{work.done} of {len(work)} labelled: {class_counts(work.labels)}"]
    return "\n".join([*lines, *([str(agreed)] if agreed else [])])


def import_patterns(options: argparse.Namespace) -> None:
    """Take over P20's annotated maps."""
    from bertsecrets.patterns.annotation.p20 import read_p20

    _check_new(options.folder)
    maps = read_p20(options.source)
    maps.save(options.folder)
    print(f"{options.folder}: {len(maps)} maps: {class_counts(maps.labels)}")


def sheets(options: argparse.Namespace) -> None:
    """Write contact sheets, or pictures by class."""
    from bertsecrets.patterns.annotation.agreement import set_agreement
    from bertsecrets.patterns.annotation.gallery import write_gallery, write_predicted
    from bertsecrets.patterns.annotation.map_set import MapSet
    from bertsecrets.patterns.annotation.sheets import write_sheets
    from bertsecrets.patterns.classifier import chosen_folder, read_report
    from bertsecrets.store.files import check_free

    check_free(options.output, ())
    maps = MapSet.load(options.folder)
    if not options.by_class and not options.predicted:
        written = write_sheets(maps, options.output, options.seed, options.count)
        print(f"{options.output}: {len(written)} sheets and index.tsv")
        return
    if options.count is not None:
        raise UserError("--count goes with sheets, not with pictures by class")
    if options.predicted:
        said = {row["map"]: row["predicted"] for row in read_report(chosen_folder())["held_out"]}
        for path in write_predicted(maps, said, options.output, options.seed):
            print(path)
        return
    for path in write_gallery(maps, options.output, options.seed):
        print(path)
    print(f"{len(maps)} maps: {class_counts(maps.settled().labels)}")
    agreed = set_agreement(maps)
    if agreed:
        print(agreed)


def train(options: argparse.Namespace) -> None:
    """Judge the pattern classifiers on held-out heads and train the suite's own."""
    from bertsecrets.patterns.annotation.map_set import own_maps
    from bertsecrets.patterns.training.cnn import PaperCnn
    from bertsecrets.patterns.training.train import show, train_patterns

    if options.cnn_epochs is not None and options.cnn_epochs < 0:
        raise UserError(f"--cnn-epochs {options.cnn_epochs}: give 1 or more, or 0 to leave the paper's classifier out")
    cnn = PaperCnn() if options.cnn_epochs is None else PaperCnn(epochs=options.cnn_epochs)
    report = train_patterns(options.data or own_maps(), options.output, cnn if cnn.epochs else None, print)
    print(f"{show(report)}\n{options.output}: weights and report")


def class_counts(labels: Iterable[str | None]) -> str:
    """Return how many maps of each class, in words."""
    counts = Counter(labels)
    return ", ".join(f"{counts[name]} {name or 'unlabelled'}" for name in (*CLASSES, None) if counts[name])
