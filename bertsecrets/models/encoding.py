"""The encoding of texts into batches of token ids, and predictions of a classifier.

Examples are sorted by length to reduce padding, but results are in the original order. The size of a batch is limited
in tokens instead of rows, so memory use does not depend on text length.
"""

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from tokenizers import Encoding, Tokenizer
from torch.nn import functional

from bertsecrets.errors import UserError
from bertsecrets.store.files import digest
from bertsecrets.texts.glue import Split

BATCH_TOKENS = 4096  # per batch, including padding
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
CACHED_SPLITS = 4  # encoded splits cached per process, enough for a task's rows for training, scores and attention


@dataclass(frozen=True)
class Encoded:
    """The token ids of a split, with one list per example. `segments` is None for models without token types."""

    input_ids: Sequence[Sequence[int]]
    segments: Sequence[Sequence[int]] | None
    padding_id: int

    def __len__(self) -> int:
        return len(self.input_ids)

    def head(self, count: int) -> "Encoded":
        """Return the first `count` examples."""
        segments = None if self.segments is None else self.segments[:count]
        return Encoded(self.input_ids[:count], segments, self.padding_id)

    def spread(self, count: int) -> list[int]:
        """Return the indices of `count` examples, evenly spaced in order of length from the shortest to the longest."""
        places = np.unique(np.linspace(0, len(self) - 1, count).astype(int))
        chosen: list[int] = np.argsort(self.lengths, kind="stable")[places].tolist()
        return chosen

    @property
    def lengths(self) -> Int[np.ndarray, " examples"]:
        """Number of tokens in each example, including special tokens."""
        return np.array([len(ids) for ids in self.input_ids], dtype=np.int64)


@dataclass(frozen=True)
class Batch:
    """Examples as tensors. `mask` is False for padding, and `indices` are the examples' positions in the split."""

    indices: Int[np.ndarray, " rows"]
    input_ids: Int[torch.Tensor, "rows tokens"]
    segments: Int[torch.Tensor, "rows tokens"] | None
    mask: Bool[torch.Tensor, "rows tokens"]

    @property
    def lengths(self) -> Int[torch.Tensor, " rows"]:
        """Number of tokens in each row, without padding."""
        return self.mask.sum(1)

    def inputs(self) -> dict[str, torch.Tensor]:
        """Return the batch as keyword arguments of a transformers model."""
        inputs = {"input_ids": self.input_ids, "attention_mask": self.mask.long()}
        if self.segments is not None:
            inputs["token_type_ids"] = self.segments
        return inputs

    def to(self, device: torch.device | str) -> "Batch":
        """Return a copy of the batch on another device. Copies to a GPU are asynchronous."""
        segments = None if self.segments is None else self.segments.to(device, non_blocking=True)
        ids, mask = (tensor.to(device, non_blocking=True) for tensor in (self.input_ids, self.mask))
        return Batch(self.indices, ids, segments, mask)


_encoded: dict[tuple[str, str, int], Encoded] = {}


def encode(split: Split, tokenizer: Any, max_length: int) -> Encoded:
    """Encode a split as token ids. As in K19's code, the two texts of a pair are two segments.

    An example has at most `max_length` word-pieces, including special tokens. If a pair is too long, the longer text is
    truncated first. Callers must not modify the result, because each process caches it by rows, tokenizer and length.
    """
    key = (split.fingerprint, identity(tokenizer), max_length)
    encoded = _encoded.pop(key, None) or tokenize(tokenizer, split.sentence1, split.sentence2, max_length)[0]
    _encoded[key] = encoded  # the newest split comes last
    while len(_encoded) > CACHED_SPLITS:
        del _encoded[next(iter(_encoded))]
    return encoded


def identity(tokenizer: Any) -> str:
    """Return a digest of everything that affects a fast tokenizer's output, except for truncation and padding."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    shown = ("truncation_side", "model_input_names", "all_special_ids", "unk_token_id", "pad_token_id")
    rest = {name: getattr(tokenizer, name, None) for name in shown}
    return digest([{**backend, "truncation": None, "padding": None}, type(tokenizer).__qualname__, rest])


def tokenize(
    tokenizer: Any, first: Sequence[str], second: Sequence[str] | None, max_length: int
) -> tuple[Encoded, Sequence[Encoding]]:
    """Return the token ids of texts (or pairs of texts), and the tokenizer's encoding of each example.

    If a text contains the name of a special token, such as "[SEP]", this name is encoded as plain text. An example has
    at most `max_length` word-pieces, including special tokens.
    """
    pairs = {"text_pair": list(second)} if second is not None else {}
    coded = tokenizer(
        list(first), **pairs, truncation="longest_first", max_length=max_length, split_special_tokens=True
    )
    encodings: Sequence[Encoding] = coded.encodings or []
    _hide_special(coded["input_ids"], encodings, tokenizer, paired=second is not None)
    padding = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    return Encoded(coded["input_ids"], coded.get("token_type_ids"), padding), encodings


def _hide_special(ids: list[list[int]], encodings: Sequence[Encoding], tokenizer: Any, *, paired: bool) -> None:
    """Replace each special token that occurs in a text by the unknown token, in place.

    Special tokens that the tokenizer itself has added are kept. The tokenizer's option `split_special_tokens` already
    splits most special tokens in texts. It does not split a token that is a single piece of a sentencepiece vocabulary.
    """
    unknown = tokenizer.unk_token_id
    special = {*tokenizer.all_special_ids} - {unknown}
    added = tokenizer.num_special_tokens_to_add(paired)
    if unknown is None:
        return
    for row, encoding in zip(ids, encodings, strict=True):
        if sum(map(special.__contains__, row)) > added:
            for place, part in enumerate(encoding.sequence_ids):
                if part is not None and row[place] in special:
                    row[place] = unknown


def lower_cases(tokenizer: Any) -> bool:
    """Return whether a fast tokenizer lower-cases its input."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    return backend["normalizer"] is not None and without_lower_casing(backend["normalizer"]) != backend["normalizer"]


def cased(tokenizer: Any) -> Any:
    """Return a copy of a fast tokenizer with the same vocabulary but without lower-casing (claim D6)."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend["normalizer"] = backend["normalizer"] and without_lower_casing(backend["normalizer"])
    copied = copy.deepcopy(tokenizer)
    copied._tokenizer = Tokenizer.from_str(json.dumps(backend))
    return copied


def without_lower_casing(normalizer: dict[str, Any]) -> dict[str, Any]:
    """Return a normalizer's configuration without lower-casing. By default, BERT's normalizer then also keeps accents.

    >>> without_lower_casing({"type": "BertNormalizer", "lowercase": True})
    {'type': 'BertNormalizer', 'lowercase': False}
    """
    if normalizer["type"] == "Sequence":
        parts = [without_lower_casing(part) for part in normalizer["normalizers"] if part["type"] != "Lowercase"]
        return {**normalizer, "normalizers": parts}
    if normalizer["type"] == "Lowercase":
        return {"type": "Sequence", "normalizers": []}
    return {**normalizer, "lowercase": False} if normalizer.get("lowercase") else normalizer


def batches(encoded: Encoded, tokens: int = BATCH_TOKENS, rows: int = 256, width: int | None = None) -> Iterator[Batch]:
    """Yield all examples in batches of similar length, starting with the shortest examples.

    Args:
        tokens: Maximum number of tokens per batch, including padding. An example with more tokens forms its own batch.
        rows: Maximum number of examples per batch.
        width: Number of tokens to which a batch is padded, unless its longest example is longer.

    >>> encoded = Encoded([[1, 2, 3], [4], [5, 6]], None, padding_id=0)
    >>> [(batch.indices.tolist(), batch.input_ids.tolist()) for batch in batches(encoded, tokens=4)]
    [([1, 2], [[4, 0], [5, 6]]), ([0], [[1, 2, 3]])]
    """
    order = np.argsort(encoded.lengths, kind="stable")
    lengths = np.maximum(encoded.lengths, width or 0)
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and stop - start < rows and lengths[order[stop]] * (stop - start + 1) <= tokens:
            stop += 1
        yield collate(encoded, order[start:stop], width)
        start = stop


def collate(encoded: Encoded, indices: Int[np.ndarray, " rows"] | Sequence[int], width: int | None = None) -> Batch:
    """Collate examples into one batch, in the same form for training and evaluation.

    Padding is on the right, regardless of the tokenizer's `padding_side`. The batch is padded to its longest example
    or, if that is longer, to `width` tokens.
    """
    rows = [encoded.input_ids[i] for i in indices]
    lengths = torch.tensor([len(row) for row in rows])
    width = max(width or 0, int(lengths.max()))

    def padded(rows: Sequence[Sequence[int]], padding: int) -> Int[torch.Tensor, "rows tokens"]:
        return torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows])

    segments = None if encoded.segments is None else padded([encoded.segments[i] for i in indices], 0)
    mask = torch.arange(width) < lengths[:, None]
    return Batch(np.asarray(indices), padded(rows, encoded.padding_id), segments, mask)


def predict(model: Any, encoded: Encoded, device: torch.device | str = "cpu") -> Float[np.ndarray, "examples outputs"]:
    """Return the classifier's logits for every example, in the original order (float32)."""
    logits: np.ndarray | None = None
    with torch.inference_mode():
        for batch in batches(encoded):
            output = model(**batch.to(device).inputs()).logits.float()
            check_finite(output)
            out = output.cpu().numpy()
            if logits is None:
                logits = np.empty((len(encoded), out.shape[1]), dtype=np.float32)
            logits[batch.indices] = out
    if logits is None:
        return np.empty((0, 0), dtype=np.float32)
    return logits


def check_finite(logits: torch.Tensor) -> None:
    """Check that logits are finite."""
    infinite = logits[~torch.isfinite(logits)]
    if len(infinite):
        raise UserError(f"a logit is {float(infinite[0])}: the model's training has diverged, so train it again")


def special_ids(tokenizer: Any) -> dict[str, int | None]:
    """Return the ids of [CLS] and [SEP], or of the tokens with these roles, such as RoBERTa's `<s>` and `</s>`.

    GPT-2's `<|endoftext|>` has both roles. If the tokenizer has no token for a role, the id is None.
    """
    first = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
    last = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    return {"cls": first, "sep": last}


def loss_of(regression: bool) -> Loss:
    """Return the fine-tuning loss: a function of logits and targets that returns the sum over examples.

    >>> loss_of(regression=True)(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 2.0])).item()
    5.0
    """
    if regression:
        return lambda logits, target: (logits[:, 0] - target.to(logits.dtype)).square().sum()
    return lambda logits, target: functional.cross_entropy(logits, target.long(), reduction="sum")
