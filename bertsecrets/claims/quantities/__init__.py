"""How one scalar is read off measurements, for each kind of claim: one file per family, and this table of them all."""

from bertsecrets.claims.estimand import Need, NotApplicableError, Quantity, Reading
from bertsecrets.claims.published import published_figures
from bertsecrets.claims.quantities import ablation, change, frames, patterns, scores, tokens, words
from bertsecrets.texts.tasks import ALL_TASKS, TASKS

__all__ = ["QUANTITIES", "Need", "NotApplicableError", "Quantity", "Reading", "published_figures"]

EVERY_TASK = tuple(TASKS)
OF_TWO_SENTENCES = tuple(name for name, task in TASKS.items() if task.sentence2)

OWN_SCORES, OTHER_SCORES = Need("scores"), Need("scores", "against")
HEADS, LAYERS = Need("head-ablation"), Need("layer-ablation")
CHANGE = Need("attention-change")
SPECIAL = Need("special-tokens")
PATTERNS = Need("patterns")
FRAMES, EXAMPLE = Need("frame-heads"), Need("example-sentence")
BARE_FRAMES = Need("frame-heads", "untrained", tasks=(ALL_TASKS,))
FEATURES, OTHER_FEATURES, RELATIONS = Need("features"), Need("features", "against"), Need("relations")
BOTH_OF_G6 = Need("head-ablation", tasks=("stsb", "rte"))
SEP_BY_TASK = (
    Need("special-tokens", tasks=("sst2",)),
    Need("special-tokens", tasks=OF_TWO_SENTENCES, least=1),
)

QUANTITIES: dict[str, Quantity] = {
    quantity.name: quantity
    for quantity in (
        Quantity("score", "points", (OWN_SCORES,), scores.score),
        Quantity("f1", "points", (OWN_SCORES,), scores.f1_score),
        Quantity("score-difference", "points", (OWN_SCORES, OTHER_SCORES), scores.difference),
        Quantity(
            "mean-score-difference",
            "points",
            tuple(Need("scores", whose, tasks=EVERY_TASK) for whose in ("own", "against")),
            scores.mean_difference,
        ),
        Quantity("cased-loss", "points", (OWN_SCORES, Need("scores", options={"cased": True})), scores.cased_loss),
        Quantity("score-over-majority", "points", (OWN_SCORES,), scores.over_majority),
        Quantity("best-head-gain", "points", (HEADS,), ablation.best_head),
        Quantity("worst-head-gain", "points", (HEADS,), ablation.worst_head),
        Quantity("mean-head-gain", "points", (HEADS,), ablation.mean_gain),
        Quantity("first-layer-gain", "points", (LAYERS,), ablation.first_layer),
        Quantity("best-layer-gain", "points", (LAYERS,), ablation.best_layer),
        Quantity("named-heads-gain", "points", (HEADS,), ablation.named_heads),
        Quantity("own-frame-heads-gain", "points", (HEADS, BARE_FRAMES), ablation.own_frame_heads),
        Quantity("named-heads-harm-rank", "percent", (BOTH_OF_G6,), ablation.named_harm),
        Quantity("shared-harm-rank", "percent", (BOTH_OF_G6,), ablation.shared_harm),
        Quantity("figure-8-correlation", "r", (HEADS,), ablation.figure_8),
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
        Quantity("sep-lead", "attention", SEP_BY_TASK, tokens.sep_lead),
        Quantity("figure-6-correlation", "r", (SPECIAL,), tokens.figure_6),
        Quantity("frame-heads-lead", "attention", (FRAMES,), frames.named_lead),
        Quantity("frame-weight", "attention", (FRAMES,), frames.head_weight),
        Quantity("ranked-frame-weight", "attention", (FRAMES,), frames.ranked_weight),
        Quantity("frame-heads-over-percentile", "attention", (FRAMES,), frames.over_percentile),
        Quantity("frame-gap-in-spread", "standard deviations", (FRAMES,), frames.gap_in_spread),
        Quantity("figure-3-correlation", "r", (FRAMES,), frames.figure_3),
        Quantity("example-weight", "attention", (EXAMPLE,), frames.example_weight),
        Quantity("best-feature-growth", "attention", (FEATURES, OTHER_FEATURES), words.best_growth),
        Quantity("feature-ratio", "ratio", (FEATURES,), words.best_against_special),
        Quantity("cls-row-lead", "attention", (FEATURES,), words.cls_row_lead),
        Quantity("figure-7-correlation", "r", (FEATURES,), words.figure_7),
        Quantity("relation-heads-diagonal", "percent", (RELATIONS, PATTERNS), words.relation_heads),
    )
}
