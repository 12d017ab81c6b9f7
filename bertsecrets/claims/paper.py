"""The tasks and heads of K19 (Kovaleva et al. 2019), fixed even if the suite learns more tasks."""

SEVEN_TASKS = ("mrpc", "stsb", "sst2", "qqp", "rte", "qnli", "mnli")  # table 1
ONE_SENTENCE_TASK = "sst2"
TWO_SENTENCE_TASKS = tuple(name for name in SEVEN_TASKS if name != ONE_SENTENCE_TASK)
FRAME_SENTENCES = 473  # section 4.2; so many and no other number are the paper's own
FRAME_HEADS = ((7, 6), (1, 2))  # (layer, head) from 1: section 4.2, figure 3
HARMFUL_HEADS = ((4, 1), (2, 12))  # (layer, head) from 1, on both STS-B and RTE: section 4.6
MODEL = "bert-base-uncased"


def is_papers_model(name: str) -> bool:
    """Return whether a model's name is that of the paper's, on the hub or at a commit of its own.

    >>> is_papers_model("google-bert/bert-base-uncased@86b5e09"), is_papers_model("minilm")
    (True, False)
    """
    return name.partition("@")[0].removeprefix("google-bert/") == MODEL
