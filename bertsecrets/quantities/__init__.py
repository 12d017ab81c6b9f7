"""How one scalar is read off measurements, for each kind of claim: one file per family, and this table of them all."""

from bertsecrets.quantities import ablation, change, patterns, scores, tokens
from bertsecrets.quantities.published import published_figures
from bertsecrets.quantities.reading import Need, NotApplicableError, Quantity, Reading
from bertsecrets.tasks import TASKS

__all__ = ["QUANTITIES", "Need", "NotApplicableError", "Quantity", "Reading", "published_figures"]

EVERY_TASK = tuple(TASKS)

OWN_SCORES, OTHER_SCORES = Need("scores"), Need("scores", "against")
HEADS, LAYERS = Need("head-ablation"), Need("layer-ablation")
CHANGE = Need("attention-change")
SPECIAL = Need("special-tokens")
PATTERNS = Need("patterns")

QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("score", "points", (OWN_SCORES,), scores.score),
        Quantity("f1", "points", (OWN_SCORES,), scores.f1_score),
        Quantity("score-difference", "points", (OWN_SCORES, OTHER_SCORES), scores.difference),
        Quantity(
            "mean-score-difference",
            "points",
            tuple(Need("scores", whose, tasks=EVERY_TASK, least=2) for whose in ("own", "against")),
            scores.mean_difference,
        ),
        Quantity("cased-loss", "points", (OWN_SCORES, Need("scores", options={"cased": True})), scores.cased_loss),
        Quantity("score-over-majority", "points", (OWN_SCORES,), scores.over_majority),
        Quantity("best-head-gain", "points", (HEADS,), ablation.best_head),
        Quantity("worst-head-gain", "points", (HEADS,), ablation.worst_head),
        Quantity("mean-head-gain", "points", (HEADS,), ablation.mean_gain),
        Quantity("first-layer-gain", "points", (LAYERS,), ablation.first_layer),
        Quantity("last-two-layers", "cosine", (CHANGE,), change.last_two),
        Quantity("heads-little-changed", "percent", (CHANGE,), change.little_changed),
        Quantity("figure-5-correlation", "r", (CHANGE,), change.figure_5),
        Quantity("sep-growth", "attention", (SPECIAL, Need("special-tokens", "against")), tokens.sep_growth),
        Quantity("depth-gap", "depth", (SPECIAL,), tokens.depth_gap),
        Quantity("class-share", "percent", (PATTERNS,), patterns.class_share),
        Quantity("rarest-class", "percent", (PATTERNS,), patterns.rarest_class),
        Quantity("class-share-gap", "percent", (Need("patterns", tasks=("qqp", "mrpc")),), patterns.share_gap),
        Quantity("class-steadiness", "percent", (PATTERNS,), patterns.steadiness),
        Quantity(
            "same-class-across-tasks",
            "percent",
            (Need("patterns", tasks=EVERY_TASK, least=2),),
            patterns.same_across_tasks,
        ),
        Quantity("pattern-macro-f1", "macro-F1", (Need("pattern-quality"),), patterns.quality),
    )
}
