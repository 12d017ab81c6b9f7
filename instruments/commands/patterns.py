"""The commands about attention patterns: `classify`, `annotate`, `import-patterns`, `train-patterns`, `sheets`."""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_run_options, path
from bertsecrets.patterns.classes import CLASSES
from bertsecrets.patterns.readings import AUTHORS
from bertsecrets.progress import counted
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject
from instruments.annotation.p20 import ARCHIVE
from instruments.commands import FILE, NUMBER, REPEATED, add_instrument


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    add = add_instrument(
        commands, classify, "classify your own attention maps under each reading", "maps.npz --json classes.json"
    ).add_argument
    maps = ".npz file with the arrays maps [n, L, L] (padded with zeros), lengths [n] and boundary [n]"
    add("maps", **FILE, help=maps)
    add("--json", **FILE, help="write each map's class and probabilities")

    annotating = add_instrument(
        commands,
        annotate,
        "draw a set of attention maps, or write an HTML page to label a set",
        "./maps --model minilm --task rte --html label.html",
    )
    add = annotating.add_argument
    add("folder", type=path, metavar="DIR", help="folder of the set of maps; with --task, a new folder")
    add("--task", action="append", help="draw maps on this task; repeatable")
    add("--per-task", **NUMBER, default=128, help="maps per fine-tuned checkpoint (default: 128)")
    pretrained = "maps of the pretrained model per task (default: 32)"
    add("--pretrained-per-task", **NUMBER, default=32, help=pretrained)
    add("--max-tokens", **NUMBER, default=100, help="skip inputs with more than N tokens")
    add("--seed", **NUMBER, default=1, help="seed of the draw")
    add = annotating.add_argument_group("page").add_argument
    add("--html", **FILE, help="write a page for labelling the maps")
    add("--annotator", default="", metavar="NAME", help="name of the annotator")
    add("--second", **NUMBER, help="label N maps blind, as the second annotator")
    add("--restart", action="store_true", help="start without this annotator's earlier labels")
    add_run_options(annotating)

    add = add_instrument(
        commands,
        import_patterns,
        "import annotated maps in the format of P20 (Prasanna et al. 2020)",
        f"{ARCHIVE} ./p20",
    ).add_argument
    source = "folder, .tar.gz or https address of a .tar.gz, with labels.txt and one .npy file per map"
    add("source", metavar="SOURCE", help=source)
    add("folder", type=path, metavar="DIR", help="new folder for the set")

    add = add_instrument(
        commands,
        train_patterns,
        "cross-validate and train the pattern classifiers, one per reading",
        "--outside k19=./p20 --output ./classifiers",
    ).add_argument
    add("--data", type=path, metavar="DIR", help="set of maps with readers' labels (default: the suite's own)")
    outside = (
        "also train a classifier on the third-party labels of the maps in DIR. Use the name k19 for the labels of "
        "K19's authors: BERT-base is then judged by that classifier"
    )
    add("--outside", type=outside_reading, **REPEATED, metavar="NAME=DIR", help=outside)
    add("--output", type=path, metavar="DIR", default=Path("pattern-classifier"), help="new folder")
    add("--cnn-epochs", **NUMBER, help="epochs for the paper's own classifier (a CNN); 0 leaves it out")

    drawing = add_instrument(
        commands, sheets, "draw contact sheets of a set of maps, as PNG", "data/patterns ./sheets --count 48"
    )
    add, choose = drawing.add_argument, drawing.add_mutually_exclusive_group().add_argument
    add("folder", type=path, metavar="DIR", help="a set of maps")
    add("output", type=path, metavar="NEW", help="new folder for the pictures")
    choose("--count", **NUMBER, help="draw only N random maps")
    unsure = "draw only the N maps without readers' labels that are hardest to classify"
    choose("--unsure", **NUMBER, help=unsure)
    add("--seed", **NUMBER, default=1, help="seed for choosing and ordering the maps")


def classify(options: argparse.Namespace) -> None:
    """Print the number of maps in each class under each reading, and write each map's class if requested.

    Raises:
        UserError: If the file does not contain attention maps, or the output cannot be written.
    """
    from bertsecrets.store.entries import write_json
    from instruments.classify import GivenMaps
    from instruments.classify import classify as classes_of

    given = GivenMaps.read(options.maps)
    classes = classes_of(given)
    if options.json:
        write_json(options.json, classes)
    print(f"{options.maps}: {counted(len(given), 'map')}")
    for reading in classes[0]:
        print(f"{reading}: {class_counts(str(each[reading]['class']) for each in classes)}")
    if given.causal:
        print(f"{given.causal} of the maps are causal; the classifiers were never tested on such maps", file=sys.stderr)


def annotate(options: argparse.Namespace) -> None:
    """Draw a set of maps if --task is given, print how many maps are labelled, and write the annotation page.

    Raises:
        UserError: If the folder has no set, or already has one although --task asks for a new set.
    """
    from instruments.annotation.agreement import set_agreement
    from instruments.annotation.map_set import MapSet

    if options.task:
        _check_new(options.folder, "leave out --task to continue with it, or ")
        _draw(options)
    elif not options.folder.is_dir():
        raise UserError(f"no set of maps in {options.folder}: give --task (and --model) to draw one")
    maps = MapSet.load(options.folder)
    if options.html:
        from instruments.annotation.page import write_page

        write_page(maps, options.html, annotator=options.annotator, second=options.second, restart=options.restart)
    elif options.second is not None or options.restart or options.annotator:
        raise UserError("--annotator, --second and --restart are for the page: give its file with --html FILE")
    print(f"{options.folder}: {counted(len(maps), 'map')}: {class_counts(maps.labels)}")
    if agreed := set_agreement(maps):
        print(agreed)
    if options.html:
        print(
            f"{options.html}: open it in a browser, label the maps, download the labels, and replace "
            f"{options.folder}/annotations.tsv with the downloaded file"
        )


def _draw(options: argparse.Namespace) -> None:
    from bertsecrets.session import Session
    from instruments.annotation.sampling import draw
    from instruments.annotation.writing import save_set

    if min(options.per_task, options.pretrained_per_task) < 0 or options.per_task + options.pretrained_per_task == 0:
        raise UserError("--per-task and --pretrained-per-task must be 0 or more, and not both 0")
    session = Session(RunOptions.from_namespace(options))
    tasks = [task(name).name for name in dict.fromkeys(options.task)]
    session.check_model()
    plan = {Subject(session.model, name): options.per_task for name in tasks}
    plan |= {Subject(session.model, name, "untrained"): options.pretrained_per_task for name in tasks}
    wanted = {subject: count for subject, count in plan.items() if count}
    save_set(draw(session, wanted, seed=options.seed, max_tokens=options.max_tokens), options.folder)


def _check_new(folder: Path, instead: str = "") -> None:
    """Raise a UserError if a folder is not empty: a set is never replaced, because it may contain labels."""
    from bertsecrets.store.files import check_free
    from instruments.annotation.map_set import shards

    if shards(folder):
        raise UserError(f"{folder} already contains a set: {instead}choose a new folder")
    check_free(folder, ())


def import_patterns(options: argparse.Namespace) -> None:
    """Import annotated maps in P20's format, and print how well the suite's classifiers agree with the labels."""
    from instruments.annotation.agreement import label_agreement
    from instruments.annotation.p20 import fetch, read_p20
    from instruments.annotation.writing import save_set
    from instruments.classify import predicted_classes

    _check_new(options.folder)
    with tempfile.TemporaryDirectory() as folder:
        fetched = "://" in options.source
        maps = read_p20(fetch(options.source, Path(folder)) if fetched else path(options.source))
    save_set(maps, options.folder)
    print(f"{options.folder}: {counted(len(maps), 'map')}: {class_counts(maps.labels)}")
    labels = [label or "" for label in maps.labels]
    for reading, classes in predicted_classes(maps).items():
        print(f"agreement with the predicted classes, reading {reading}: {label_agreement(labels, classes)}")
    training = f"python -m instruments train-patterns --outside {AUTHORS}={options.folder} --output DIR"
    print(f"to judge BERT-base by K19's labels: {training}, then set BERTSECRETS_PATTERNS=DIR")


def sheets(options: argparse.Namespace) -> None:
    """Write contact sheets.

    Raises:
        UserError: If the output folder is not empty, or the number of maps is out of range.
    """
    from bertsecrets.store.files import check_free, copy_whole
    from instruments.annotation.map_set import MapSet, read_plain_words
    from instruments.annotation.pictures import write_sheets
    from instruments.classify import least_sure

    check_free(options.output, ())
    maps = MapSet.load(options.folder)
    if options.unsure is not None:
        read = read_plain_words(options.folder)
        maps = least_sure(maps.take(i for i, each in enumerate(maps) if each.name not in read), options.unsure)
    with tempfile.TemporaryDirectory() as temporary:
        written = write_sheets(maps, Path(temporary), options.seed, options.count)
        copy_whole(Path(temporary), options.output, ())
    print(f"{options.output}: {len(written)} pictures")


def train_patterns(options: argparse.Namespace) -> None:
    """Evaluate pattern classifiers on held-out heads, and train the suite's classifier for each reading on all maps."""
    from instruments.annotation.map_set import own_maps
    from instruments.classifiers.baselines import PaperCnn
    from instruments.classifiers.train import show, train_patterns

    if options.cnn_epochs is not None and options.cnn_epochs < 0:
        raise UserError(f"--cnn-epochs {options.cnn_epochs}: give 1 or more, or 0 to leave the paper's classifier out")
    cnn = PaperCnn() if options.cnn_epochs is None else PaperCnn(epochs=options.cnn_epochs)
    if len(dict(options.outside)) < len(options.outside):
        raise UserError("--outside has a duplicate reading: use different names")
    report = train_patterns(
        options.data or own_maps(), options.output, cnn if cnn.epochs else None, print, outside=dict(options.outside)
    )
    print(f"{show(report)}\n{options.output}: weights and report")


def outside_reading(text: str) -> tuple[str, Path]:
    """Return the name and folder of an outside reading, given as NAME=DIR.

    >>> outside_reading("k19=maps")[0]
    'k19'

    Raises:
        ArgumentTypeError: If the text has a different form.
    """
    name, equals, folder = text.partition("=")
    if not name or not equals or not folder:
        raise argparse.ArgumentTypeError(f"{text!r} must have the form NAME=DIR, such as k19=./p20")
    return name, path(folder)


def class_counts(labels: Iterable[str | None]) -> str:
    """Return the number of maps in each class as text.

    >>> class_counts(["block", "block", None])
    '2 block, 1 unlabelled'
    """
    counts = Counter(labels)
    return ", ".join(f"{counts[name]} {name or 'unlabelled'}" for name in (*CLASSES, None) if counts[name])
