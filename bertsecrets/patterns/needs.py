"""Requirements for judging the suite's classifier on held-out heads. Nothing here imports torch."""

from bertsecrets.errors import MissingError
from bertsecrets.extras import extra_problem
from bertsecrets.patterns.map_set import UNSEEN, own_maps


def held_out_problem() -> str | None:
    """Return why the classifier cannot be judged (maps or scikit-learn are missing); None if it can."""
    try:
        for part in ("", UNSEEN):
            own_maps(part)
    except MissingError as error:
        return str(error)
    return extra_problem("scikit-learn")
